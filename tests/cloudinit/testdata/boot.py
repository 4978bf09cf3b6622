"""Consume user-data and vendor-data with cloud-init's own code, once for each of
the FREQUENCIES: boot.py ROOT USER-DATA VENDOR-DATA FREQUENCIES...

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


root, user_data, vendor_data, *frequencies = sys.argv[1:]
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


def read(name):
    with open(name, "rb") as f:
        return f.read()


for frequency in frequencies:
    init = stages.Init([])
    init._cfg = {"system_info": {"paths": dirs, "distro": "debian"}, "vendor_data": {"enabled": True}}
    paths = helpers.Paths(dirs)
    init.datasource = Seed(init._cfg, None, paths)
    init._paths = paths
    paths.datasource = init.datasource
    init.datasource.userdata_raw = read(user_data)
    init.datasource.vendordata_raw = read(vendor_data)
    init._consume_userdata(frequency)
    init._consume_vendordata("vendordata", frequency)
