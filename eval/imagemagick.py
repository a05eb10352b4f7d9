"""ImageMagick for the evaluation scripts: the command, without its own limits, and a generated picture."""

import os
import subprocess

# The default limits would send large pictures to ImageMagick's own disk cache.
POLICY = """<policymap>
  <policy domain="resource" name="memory" value="64GiB"/>
  <policy domain="resource" name="map" value="64GiB"/>
  <policy domain="resource" name="width" value="64KP"/>
  <policy domain="resource" name="height" value="64KP"/>
  <policy domain="resource" name="area" value="64GP"/>
</policymap>
"""


def convert():
    """The command, or None. In /usr/bin: `convert` in PATH may be another program."""
    return next((c for c in ("/usr/bin/convert-im6.q16", "/usr/bin/convert") if os.path.exists(c)), None)


def environment(folder):
    """Variables for no limits and two threads; writes the policy into the folder."""
    (folder / "policy.xml").write_text(POLICY)
    return {"MAGICK_CONFIGURE_PATH": str(folder), "OMP_NUM_THREADS": "2"}


def picture(command, size, path, env):
    """Makes the same picture every time."""
    subprocess.run(
        [command, "-size", size, "-seed", "7", "plasma:fractal", "-depth", "8", path],
        check=True, env={**os.environ, **env},
    )
