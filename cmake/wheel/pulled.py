"""pulled.py WHEEL...: prints each wheel's size, and what else pip pulls for it on an empty machine (Python 3.11, x86-64),
as the registry tells it to uv."""

import pathlib
import subprocess
import sys
import tomllib
import zipfile


def requirements(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [line.split(": ", 1)[1] for line in lines if line.startswith("Requires-Dist: ")]


def pulled(wanted):
    """[(size, name)], largest first."""
    command = [pathlib.Path(sys.executable).with_name("uv"), "pip", "compile", "--quiet", "--no-config", "--format=pylock.toml"]
    command += ["--python-version=3.11", "--python-platform=x86_64-manylinux_2_35", "-"]
    said = subprocess.run(command, input="\n".join(wanted), stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
    packages = tomllib.loads(said)["packages"]
    return sorted(((package["wheels"][0]["size"], package["name"]) for package in packages), reverse=True)


def main():
    for wheel in map(pathlib.Path, sys.argv[1:]):
        print(f"{wheel}: {wheel.stat().st_size / 1e6:,.1f} MB")
        try:
            sizes = pulled(requirements(wheel))
        except (subprocess.SubprocessError, KeyError) as error:
            print(f"  what pip pulls for it is not known: {error}")
            continue
        largest = ", ".join(f"{name} {size / 1e6:,.0f}" for size, name in sizes[:4])
        print(f"  pip pulls {len(sizes)} packages for it, {sum(size for size, _ in sizes) / 1e6:,.0f} MB ({largest}, ...)")


main()
