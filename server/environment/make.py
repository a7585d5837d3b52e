"""Makes the environment that a job asks for: python -c SCRIPT FOLDER KEY < question, run by the pool's interpreter.

Lines on standard output begin with "say" (for the job's output), "out" (what the program that installs wrote), "bad"
(why there is no environment) or "never" (likewise, and there is none however often it is tried). What was made stands
in FOLDER/requests/KEY.json.
"""

import contextlib
import fcntl
import glob
import hashlib
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import site
import subprocess
import sys
import tempfile

# What every pool's interpreter has from hora's own distributions: another one of that name would lie over it.
OURS = re.compile(r"(hora|hora-.*|horovod|sparkdl|spark-tensorflow-distributor|azureml|azureml-.*)$")
# What conda calls otherwise than the index.
CONDA = {
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "tensorflow-gpu": "tensorflow",
    "py-xgboost": "xgboost",
    "matplotlib-base": "matplotlib",
}
KEEP = 30  # environments that nobody uses
TAIL = 15  # lines of a program that fails


# What pip and conda say of packages that are not there, or do not go together.
NEVER = re.compile(
    r"No matching distribution|ResolutionImpossible|conflicting dependencies|Invalid requirement"
    r"|PackagesNotFound|ResolvePackageNotFound|Unsatisfiable|nothing provides"
)
# And of an index that did not answer, where they say that nothing is there as well.
AWAY = re.compile(
    r"connection (broken|error|reset|refused|aborted)|could not fetch|max retries|timed out|TimeoutError|HTTP error 5"
    r"|name resolution",
    re.I,
)


class Bad(Exception):
    """Why there is no environment."""


class Never(Bad):
    """Why there is none, however often it is tried."""


def say(text):
    print("say", text, flush=True)


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def named(line):
    """The package that a requirement names."""
    return normal(re.match(r"[A-Za-z0-9._-]*", line).group())


def wheel_of(name):
    """The wheel of hora's that has the names of a package in OURS."""
    if name == "hora" or name.startswith("hora-"):
        return name
    return "hora-azureml" if name.startswith("azureml") else "hora-compat"


def run(*command):
    """Runs a program; its exit code and its lines."""
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        check=False
    )
    return done.returncode, done.stdout.decode(errors="replace").splitlines()


def fail(lines, what):
    """Shows the last lines of what has failed."""
    lines = [line for line in lines if line.strip()]
    for line in lines[-TAIL:]:
        print("out", line, flush=True)
    errors = [line.split("ERROR: ", 1)[1] for line in lines if "ERROR: " in line] or lines[-1:]
    text, why = "\n".join(lines), f"{what}: {errors[-1].strip() if errors else 'it says nothing'}"
    if AWAY.search(text):
        raise Bad(f"{why}: the index did not answer, as the lines above tell: see that the node reaches it and submit the job again")
    raise (Never if NEVER.search(text) else Bad)(f"{why}: correct what --pip or --env asks for and submit the job again")


@contextlib.contextmanager
def locked(path):
    with open(path, "w") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


class Base:
    """The interpreter that runs this, and its packages."""

    def __init__(self):
        tops = [p for p in site.getsitepackages() if os.path.isdir(p)]
        user = site.getusersitepackages()
        if site.ENABLE_USER_SITE and os.path.isdir(user):
            tops.append(user)
        self.tops = tops
        beside = [p for p in sys.path if os.path.isdir(p) and os.path.basename(p) in ("site-packages", "dist-packages")]
        self.site = {p: os.stat(p).st_mtime_ns for p in dict.fromkeys([*tops, *beside])}
        self.packages = {}
        for d in importlib.metadata.distributions():
            if d.metadata["Name"]:
                self.packages.setdefault(normal(d.metadata["Name"]), d.version)

    def links(self):
        """The lines of a .pth file that lets another environment see them, behind its own."""
        return "".join(f"import site; site.addsitedir({p!r})\n" for p in self.tops)


def create(folder, base, conda, channels):
    """An empty environment on the base; its interpreter."""
    if conda:
        tool = next(filter(None, map(shutil.which, ("micromamba", "mamba", "conda"))), None)
        if tool is None:
            raise Bad(
                f"the packages {', '.join(conda)} are conda's, and this node has neither conda, mamba nor micromamba: "
                "move them below pip: in the file, or install conda on the node"
            )
        say(f"{os.path.basename(tool)} installs {', '.join(conda)}")
        wanted = [f"python={sys.version_info[0]}.{sys.version_info[1]}", "pip", *conda]
        code, lines = run(tool, "create", "--yes", "--quiet", "--prefix", folder, *(x for c in channels for x in ("--channel", c)), *wanted)
        if code:
            fail(lines, os.path.basename(tool))
    else:
        code, lines = run(sys.executable, "-m", "venv", "--without-pip", folder)
        if code:
            fail(lines, f"{sys.executable} -m venv")
    found = glob.glob(os.path.join(folder, "lib*", "python*", "site-packages"))
    if not found:
        raise Bad(f"{folder} has no site-packages after it was made: look at {sys.executable}")
    with open(os.path.join(found[0], "hora_base.pth"), "w") as f:
        f.write(base.links())
    return os.path.join(folder, "bin", "python")


def find_uv():
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    return beside if os.access(beside, os.X_OK) else shutil.which("uv")


def with_pip(python, uv):
    """Sees to it that an environment has a pip."""
    if run(python, "-m", "pip", "--version")[0] == 0:
        return
    code, lines = run(uv, "pip", "install", "--quiet", "--python", python, "pip") if uv else run(python, "-m", "ensurepip")
    if code:
        fail(lines, f"{sys.executable} has no pip, and getting one failed: install pip there, or uv beside it")


def on_conda(conda, base):
    """What conda must install: the interpreter may have a package already."""
    rest = []
    for text in conda:
        parts = re.split(r"\s*[=<>!~]+\s*|\s+", text.rpartition("::")[2].strip())
        name = CONDA.get(normal(parts[0]), normal(parts[0]))
        have, asked = (base.packages.get(name), parts[1].rstrip("*.") if len(parts) > 1 else "")
        exact = "=" in text and not re.search(r"[<>!~]", text)
        if have and (not asked or exact and (have + ".").startswith(asked + ".")):
            say(f"conda's {text} is {name} {have} of the pool's interpreter")
        else:
            rest.append(text)
    return rest


def numbers(release):
    return tuple(int(n) for n in re.findall(r"\d+", release.split("+")[0]))


def nearest(want, base, python, options):
    """The requirement that comes next to a framework and its release; none where the interpreter has it."""
    name, _, asked = want.partition("==")
    have = base.packages.get(normal(name))
    if have:
        if asked and numbers(have)[: len(numbers(asked))] != numbers(asked):
            say(f"{name} {asked} was asked for: {name} {have} of the pool's interpreter is taken")
        return None
    if not asked:
        return name
    _, lines = run(python, "-m", "pip", "install", "--dry-run", "--no-deps", "--ignore-installed", *options, f"{name}==99999")
    listed = re.findall(r"\(from versions: ([^)]*)\)", "\n".join(lines))
    stable = sorted((numbers(v), v) for v in (listed[0].split(", ") if listed else []) if re.fullmatch(r"[0-9.]+", v))
    if not stable:
        fail(lines, f"no release of {name} installs here")
    want_numbers = numbers(asked)
    same = [v for n, v in stable if n[: len(want_numbers)] == want_numbers]
    above = [v for n, v in stable if n > want_numbers]
    taken = same[-1] if same else above[0] if above else stable[-1][1]
    if not same:
        say(
            f"{name} {asked} was asked for and has no release for Python {sys.version_info[0]}.{sys.version_info[1]}: {name} {taken} is the nearest and is taken"
        )
    return f"{name}=={taken}"


def resolve(python, lines, constraints, tmp):
    """Which releases are to be installed beside the base's."""
    files = []
    for name, content in (("requirements.txt", lines), ("constraints.txt", constraints)):
        files.append(os.path.join(tmp, name))
        with open(files[-1], "w") as f:
            f.write("\n".join(content) + "\n")
    report = os.path.join(tmp, "report.json")
    bounds = ["-c", files[1]] if constraints else []
    code, said = run(python, "-m", "pip", "install", "--dry-run", "--report", report, "-r", files[0], *bounds)
    if code and any("no such option: --report" in line for line in said):
        raise Bad(
            f"the pip of {sys.executable} is older than 22.2, which cannot say what it would install: python -m pip install --upgrade pip on the node"
        )
    if code:
        fail(said, "pip")
    with open(report) as f:
        found = json.load(f)["install"]
    lock, hashed = [], []
    for one in found:
        name, release, info = (one["metadata"]["name"], one["metadata"]["version"], one["download_info"])
        if "vcs_info" in info:
            line = f"{name} @ {info['vcs_info']['vcs']}+{info['url']}@{info['vcs_info']['commit_id']}"
        elif one.get("is_direct"):
            line = f"{name} @ {info['url']}"
        else:
            line = f"{name}=={release}"
        sha = (info.get("archive_info", {}).get("hashes") or {}).get("sha256")
        hashed.append(bool(sha))
        lock.append((line, f" --hash=sha256:{sha}"))
    return sorted(line + (sha if all(hashed) else "") for line, sha in lock)


def install(python, lock, options, uv, tmp):
    """Installs what was resolved, and nothing else."""
    path = os.path.join(tmp, "lock.txt")
    with open(path, "w") as f:
        f.write("\n".join([*options, *lock]) + "\n")
    if uv:
        code, lines = run(uv, "pip", "install", "--quiet", "--python", python, "--no-deps", "-r", path)
        if code == 0:
            return
        say(f"uv does not install it ({lines[-1].strip() if lines else code}), and pip is asked")
    with_pip(python, None)
    code, lines = run(python, "-m", "pip", "install", "--ignore-installed", "--no-deps", "-r", path)
    if code:
        fail(lines, "pip")


def tidy(folder):
    """Removes environments that nobody uses, where there are many."""
    made = sorted(glob.glob(os.path.join(folder, "*", "complete")), key=os.path.getmtime, reverse=True)
    for complete in made[KEEP:]:
        one = os.path.dirname(complete)
        with open(one + ".lock", "w") as f:
            try:
                fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue
            os.remove(complete)
            shutil.rmtree(one, ignore_errors=True)


def ask(question, base, uv, tmp):
    """Options, lock and conda's packages for a question."""
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    python = question.get("python", "")
    if python and python.strip("=*.").split(".")[:2] != here.split("."):
        say(f"Python {python} was asked for: the pool's interpreter is {here}, and is taken")
    options = [line for line in question.get("pip") or [] if line.startswith("-")]
    words = [w for line in options for w in shlex.split(line)]
    conda = on_conda(question.get("conda") or [], base)
    if question.get("lock"):
        return options, question["lock"], conda
    wanted = []
    for line in question.get("pip") or []:
        if OURS.match(named(line)) and not line.startswith("-"):
            wheel = wheel_of(named(line))
            lacks = "" if wheel in base.packages else f", and this interpreter lacks {wheel}: install that wheel beside it"
            say(f"{line} is not installed: hora's distributions stand for it{lacks}")
        elif not line.startswith("-"):
            wanted.append(line)
    resolver = sys.executable
    if (wanted or question.get("nearest")) and run(resolver, "-m", "pip", "--version")[0]:
        resolver = create(os.path.join(tmp, "resolver"), base, [], [])
        with_pip(resolver, uv)
    for want in question.get("nearest") or []:
        if not OURS.match(named(want)):
            line = nearest(want, base, resolver, words)
            wanted += [line] if line else []
    if not wanted:
        return options, [], conda
    return (options, resolve(resolver, [*options, *wanted], question.get("constraints") or [], tmp), conda)


def main(folder, key):
    question = json.load(sys.stdin)
    base, uv = Base(), find_uv()
    with tempfile.TemporaryDirectory(dir=folder) as tmp:
        options, lock, conda = ask(question, base, uv, tmp)
        about = [sys.executable, sys.version, *options, *lock, *conda, *(f"{n}=={v}" for n, v in sorted(base.packages.items()))]
        name = hashlib.sha256("\n".join(about).encode()).hexdigest()[:16]
        one = os.path.join(folder, "environments", name)
        with locked(one + ".lock"):
            if not os.path.exists(os.path.join(one, "complete")):
                shutil.rmtree(one, ignore_errors=True)
                try:
                    python = create(one, base, conda, question.get("channels") or [])
                    if lock:
                        say(
                            f"{len(lock)} package{'s' * (len(lock) != 1)} beside the interpreter's: {', '.join(line.split(' --hash')[0] for line in lock[:12])}{', …' * (len(lock) > 12)}"
                        )
                        install(python, lock, options, uv, tmp)
                except BaseException:
                    shutil.rmtree(one, ignore_errors=True)
                    raise
                with open(os.path.join(one, "lock.txt"), "w") as f:
                    f.write("\n".join([*options, *lock]) + "\n")
                with open(os.path.join(one, "complete"), "w"):
                    pass
    answer = os.path.join(folder, "requests", key + ".json")
    with open(answer + ".new", "w") as f:
        json.dump({"environment": name, "lock": lock, "site": base.site}, f)
    os.replace(answer + ".new", answer)
    tidy(os.path.join(folder, "environments"))


try:
    main(*sys.argv[1:3])
except Bad as e:
    print("never" if isinstance(e, Never) else "bad", e, flush=True)
    sys.exit(1)
except OSError as e:
    print("bad", f"{e}: see that the node's disk has room and may be written", flush=True)
    sys.exit(1)
