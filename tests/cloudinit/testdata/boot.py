"""Consume user-data with cloud-init's own code: boot.py ROOT FREQUENCY USER-DATA.

ROOT holds what cloud-init keeps in /var/lib/cloud and /run/cloud-init. Warnings
and errors of cloud-init and its handlers go to standard output.
"""
import logging
import os
import sys

from cloudinit import helpers, sources, stages


class Seed(sources.DataSource):
    dsname = "Seed"

    def get_instance_id(self):
        return "i-1"


root, frequency, seed = sys.argv[1:]
out = logging.StreamHandler(sys.stdout)
out.setFormatter(logging.Formatter("%(levelname)s: %(message)s"))
logging.getLogger().addHandler(out)
logging.getLogger().setLevel(logging.WARNING)

dirs = {"cloud_dir": root + "/lib", "run_dir": root + "/run"}
instance = root + "/lib/instances/i-1"
for folder in [root + "/lib/handlers", root + "/lib/data", root + "/run", instance + "/sem", instance + "/scripts", instance + "/handlers"]:
    os.makedirs(folder, exist_ok=True)
if not os.path.islink(root + "/lib/instance"):
    os.symlink(instance, root + "/lib/instance")

init = stages.Init([])
init._cfg = {"system_info": {"paths": dirs, "distro": "debian"}}
paths = helpers.Paths(dirs)
init.datasource = Seed(init._cfg, None, paths)
init._paths = paths
paths.datasource = init.datasource
with open(seed, "rb") as f:
    init.datasource.userdata_raw = f.read()
init._consume_userdata(frequency)
