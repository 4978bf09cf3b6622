#part-handler
"""cloud-init's handler of hostler's declarations.

It writes each part of the type text/hostler-config into conf.d, and a whole
user-data that begins with #hostler-config. A file is replaced only if its bytes
differ, so the agent sees no change at an ordinary boot. The handler never
removes a file: user-data may be gone for one boot, e.g. with its seed disk.
"""
import glob
import itertools
import logging
import os
import re
import subprocess
import tempfile

import yaml

try:
    import grp
except ImportError:
    grp = None

CONF_D = "/etc/hostler/conf.d"
# conf.d stands beside it.
CONFIG = "/etc/hostler/hostler.yaml"
HOSTLER = "/usr/bin/hostler"
GROUP = "hostler-admin"
# The times of X-Hostler-Wait in the parts' headers, and the reasons why parts are not
# used, for hostler-wait.
WAIT = "/run/cloud-init/hostler-wait"
ERRORS = "/run/cloud-init/hostler-errors"

# cloud-init calls the handler at every boot, with the headers of each part.
frequency = "always"
handler_version = 3

LOG = logging.getLogger(__name__)

# User-data that is no MIME message and begins like nothing that cloud-init knows.
BARE = "text/x-not-multipart"
# Such user-data if it mentions a MIME-Version near its start, e.g. in a machine's own
# user-data: cloud-init takes it for a message.
PLAIN = "text/plain"
# The files of texts without a name. Earlier versions took cloud-init's name, part-001.
UNNAMED = re.compile(r"/cloud-init-(user-data(?:-\d+)?|part-\d+)\.yaml$")
FIRST_LINE = re.compile(rb"(\xef\xbb\xbf)?\s*#hostler-config\s*?(\r?\n|$)", re.IGNORECASE)

# cloud-init hands over the parts of the user-data, then those of the vendor-data,
# with __begin__ and __end__ around each of the two. Its process may do so again at
# a later stage of the boot, and this module's variables keep their values.

# The name and bytes of the part that each file of conf.d comes from, by path. The
# first part of a name is used, so user-data wins over vendor-data.
used = {}
# The times of all parts for which cloud-init waits.
waits = []
# The reasons why parts are not used.
errors = []
# The files of the parts since the last __begin__.
unchecked = []


def list_types():
    return ["text/hostler-config", BARE, PLAIN]


def handle_part(data, ctype, filename, payload, frequency, headers):
    if frequency == "always" and not os.path.isdir(CONF_D) and not os.path.exists(HOSTLER):
        return  # the package was purged; before its installation the first boot writes
    if ctype == "__begin__":
        unchecked.clear()
    if ctype == "__end__" and unchecked:
        check()
    if ctype in ("__begin__", "__end__") or not payload:
        return
    # cloud-init replaces bytes that are not UTF-8 by surrogates.
    body = payload.encode("utf-8", "surrogateescape") if isinstance(payload, str) else bytes(payload)
    if ctype in (BARE, PLAIN) and not FIRST_LINE.match(body):
        # cloud-init's own words for it
        LOG.warning("Unhandled %s (%s) userdata: '%s...'", "non-multipart" if ctype == BARE else "unknown content-type", ctype, body[:24].decode("utf-8", "replace"))
        return
    if ctype == BARE or re.match(r"part-\d+$", filename or ""):
        filename = bare_name(body)
    wait(headers, filename)
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        error("%s is not used, because its text is not UTF-8: save it as UTF-8, and encode a part with such characters in base64, as `hostler user-data` does", filename)
        return
    path = os.path.join(CONF_D, name_of(filename))
    unchecked.append(path)
    first, text = used.setdefault(path, (filename, body))
    if text != body:
        error("the parts %s and %s have the same name, and the second is not used: give each part of the user-data and the vendor-data a file name of its own", first, filename)
        return
    # cloud-init's result has the text of a log line, but not that of an exception.
    try:
        if write(path, body):
            LOG.info("hostler: wrote %s", path)
    except OSError as e:
        error("cannot write %s: %s", path, e)


def bare_name(body):
    """Return user-data, user-data-2 and so on for the texts without a name.

    The number that cloud-init gives a text counts all parts, and shifts when another
    part comes or goes. A text keeps the file that has it already, or that declares most
    of its objects, so it does not replace the file of a text that is gone.
    """
    texts = {path: read(path) for path in glob.glob(os.path.join(CONF_D, "cloud-init-*.yaml"))}
    texts.update((path, text) for path, (_, text) in used.items())
    texts = {name: texts[path] for path in sorted(sorted(texts), key=len) for name in UNNAMED.findall(path)}
    mine = [name for name in texts if texts[name] == body]
    free = [name for name in texts if os.path.join(CONF_D, name_of(name)) not in used]
    declared = set() if mine else objects(body)
    shared = {name: len(declared & objects(texts[name])) for name in free}
    mine += sorted((name for name in free if shared[name]), key=shared.get, reverse=True)
    numbers = ("user-data" if n == 1 else "user-data-%d" % n for n in itertools.count(1))
    return mine[0] if mine else next(name for name in numbers if name not in texts or name in free)


def objects(text):
    """Return the objects that a text declares, e.g. ("machines", "web")."""
    try:
        return {(kind, name) for kind, named in yaml.safe_load(text).items() if isinstance(named, dict) for name in named}
    except Exception:  # e.g. no YAML, or no text
        return set()


def name_of(filename):
    """Return e.g. cloud-init-web.yaml for web.yaml, a valid name of a declaration."""
    stem = os.path.basename(filename or "").lower()
    stem = re.sub(r"\.(ya?ml|json|txt)$", "", stem)
    stem = re.sub(r"[^a-z0-9]+", "-", stem).strip("-")[:50].strip("-")
    return "cloud-init-%s.yaml" % (stem or "user-data")


def read(path):
    """Return the bytes of a file, None if it cannot be read."""
    if not os.path.isfile(path):  # the open of a pipe would block
        return None
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return None


def write(path, body):
    """Replace the file if its bytes differ. Return whether they did."""
    if read(path) == body:
        return False
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):  # the package is installed later
        os.makedirs(os.path.dirname(folder), mode=0o755, exist_ok=True)
        os.mkdir(folder, mode=0o750)
    # A name with a dot in front is no declaration.
    fd, temporary = tempfile.mkstemp(prefix=".cloud-init-", dir=folder)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(body)
            f.flush()
            os.fchmod(f.fileno(), 0o640)
            os.fchown(f.fileno(), -1, group())
            os.fsync(f.fileno())
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
    return True


def wait(headers, filename):
    """Have cloud-init wait for the objects at this boot, for the longest time of all parts.

    After 0s hostler-wait fails only if the agent refuses a file.
    """
    time = next((str(text) for name, text in headers.items() if name.lower() == "x-hostler-wait"), "0s")
    if not re.match(r"([0-9]+[hms])+$", time):
        error("X-Hostler-Wait of %s takes a time like 20m, not %s", filename, time)
        time = "0s"
    tell(WAIT, waits, time)


def error(message, *values):
    """Log an error, and have hostler-wait fail with it.

    The result of cloud-init before 23.4 has no text of a log line.
    """
    LOG.error("hostler: " + message, *values)
    tell(ERRORS, errors, message % values)


def tell(path, lines, line):
    """Add a line to the lines of a file for hostler-wait."""
    if line not in lines:
        lines.append(line)
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as f:
            f.write("\n".join(lines) + "\n")
    except OSError as e:
        LOG.error("hostler: cannot write %s: %s", path, e)


def group():
    """Return the id of the administrators' group, -1 before the package is installed."""
    try:
        return grp.getgrnam(GROUP).gr_gid
    except (AttributeError, KeyError):
        return -1


def check():
    """Log the errors of conf.d, so that cloud-init's result has them.

    The declarations may refer to each other, so all are checked together. Every
    user can read the result, so the log has no excerpts of files. hostler-wait asks
    the agent, which also has the declarations of `hostler apply`.
    """
    if not os.access(HOSTLER, os.X_OK):
        return
    try:
        done = subprocess.run([HOSTLER, "validate", "-q", "--system", "--summary", "--config", CONFIG], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=30)
    except (OSError, subprocess.TimeoutExpired) as e:
        LOG.error("hostler: cannot check %s: %s", CONF_D, e)
        return
    if done.returncode != 0:
        LOG.error("%s", done.stderr.decode("utf-8", "replace").strip())
