#!/bin/sh
# Installs what `make test` needs: Debian packages (as root; else prints the line to
# run), the pinned Go tools and a Python environment for the tests. What it downloads
# goes to ${HORA_CACHE:-~/.cache/hora}, keyed by the lock files, so that a second
# clone finds it.
#
#   sh tools/deps.sh            install
#   sh tools/deps.sh path venv  print the Python environment's folder
#   sh tools/deps.sh path tools print the tools' folder
#   sh tools/deps.sh path trainers  print the folder with Lightning and Accelerate
#   sh tools/deps.sh path jax       print the folder with JAX
#   sh tools/deps.sh impi       install Intel MPI, which the benchmarks alone know (also: path impi)
#   sh tools/deps.sh path data      print the folder with pyarrow
#   sh tools/deps.sh path petastorm  print the folder with Petastorm's wheel, for its tests
#   sh tools/deps.sh path tensorflow  print the folder with TensorFlow and Keras
#   sh tools/deps.sh path keras-2     print the folder with Keras 2 (tf_keras)
#   sh tools/deps.sh path mxnet       print the folder with MXNet and its NumPy
#   sh tools/deps.sh path s3        print the folder with s3fs and a server that plays S3
#   sh tools/deps.sh path spark-4     print the Python environment with pyspark 4 (also: spark-3.5)
set -eu
cd "$(dirname "$0")/.."
cache=${HORA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/hora}
requirements=python/requirements-test.txt
trainers_list=python/requirements-trainers.txt
jax_list=python/requirements-jax.txt
impi_list=python/requirements-impi.txt
data_list=python/requirements-data.txt
tensorflow_list=python/requirements-tensorflow.txt
keras2_list=python/requirements-keras-2.txt
mxnet_list=python/requirements-mxnet.txt
petastorm_list=python/requirements-petastorm.txt
s3_list=python/requirements-s3.txt
spark4_list=python/requirements-spark-4.txt
spark35_list=python/requirements-spark-3.5.txt

packages="gcc g++ make git libc6-dev openmpi-bin libopenmpi-dev mpich slurmctld slurmd slurm-client munge libgloo-dev qemu-user openssh-client openssh-server iproute2 nftables util-linux procps chromium openjdk-17-jre-headless"

find_python() {
    for candidate in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "deps: no Python 3.10 or newer was found; install python3 and python3-venv, or set PYTHON" >&2
    exit 1
}

hash_of() { cat "$@" | sha256sum | cut -c1-12; }

python=$(find_python)
version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
venv=$cache/venv-$version-$(hash_of "$requirements")
tools=$cache/tools-$(hash_of tools/go.mod tools/go.sum)
trainers=$cache/trainers-$version-$(hash_of "$trainers_list")
jax=$cache/jax-$version-$(hash_of "$jax_list")
impi=$cache/impi-$(hash_of "$impi_list")
data=$cache/data-$version-$(hash_of "$data_list")
tensorflow=$cache/tensorflow-$version-$(hash_of "$tensorflow_list")
keras2=$cache/keras-2-$version-$(hash_of "$keras2_list")
mxnet=$cache/mxnet-$version-$(hash_of "$mxnet_list")
petastorm=$cache/petastorm-$(hash_of "$petastorm_list")
s3=$cache/s3-$version-$(hash_of "$s3_list")
spark4=$cache/spark-4-$version-$(hash_of "$spark4_list" "$requirements")
spark35=$cache/spark-3.5-$version-$(hash_of "$spark35_list" "$requirements")

if [ "${1:-}" = path ]; then
    case ${2:-} in
    venv) echo "$venv" ;;
    tools) echo "$tools" ;;
    trainers) echo "$trainers" ;;
    jax) echo "$jax" ;;
    impi) echo "$impi" ;;
    data) echo "$data" ;;
    tensorflow) echo "$tensorflow" ;;
    keras-2) echo "$keras2" ;;
    mxnet) echo "$mxnet" ;;
    petastorm) echo "$petastorm" ;;
    s3) echo "$s3" ;;
    spark-4) echo "$spark4" ;;
    spark-3.5) echo "$spark35" ;;
    *) echo "deps: path of what? venv, tools, trainers, jax, tensorflow, keras-2, mxnet, data, petastorm, s3, spark-4, spark-3.5 or impi" >&2; exit 2 ;;
    esac
    exit
fi

if [ "${1:-}" = impi ]; then
    if [ ! -f "$impi/.complete" ]; then
        echo "deps: installing Intel MPI for the benchmarks"
        rm -rf "$impi"
        "$python" -m venv "$impi"
        "$impi/bin/python" -m pip install --quiet --disable-pip-version-check -r "$impi_list"
        touch "$impi/.complete"
    fi
    exit
fi

missing=
if command -v dpkg-query >/dev/null 2>&1; then
    for p in $packages; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing="$missing $p"
    done
else
    echo "deps: this is no Debian-like system: see that these are there: $packages" >&2
fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then
        echo "deps: installing$missing"
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
    else
        echo "deps: some tests need packages; run: sudo apt-get install$missing" >&2
    fi
fi

if [ ! -x "$tools/staticcheck" ] || [ ! -x "$tools/gofumpt" ]; then
    echo "deps: building staticcheck and gofumpt"
    mkdir -p "$tools"
    (cd tools && GOBIN=$tools go install tool)
fi

if [ ! -f "$venv/.complete" ]; then
    echo "deps: making the Python environment of the tests (a download of some GB the first time)"
    rm -rf "$venv"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
    touch "$venv/.complete"
fi
# Frameworks that stand in a folder of their own: tests that want one put it into their path.
beside() { # folder, list, what
    [ ! -f "$1/.complete" ] || return 0
    echo "deps: installing $3"
    rm -rf "$1"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --target "$1" -r "$2"
    touch "$1/.complete"
}
beside "$trainers" "$trainers_list" "trainers built on torch"
beside "$jax" "$jax_list" "JAX"
beside "$data" "$data_list" "what the tests of data compare with"
beside "$petastorm" "$petastorm_list" "Petastorm's wheel, for its tests"
beside "$s3" "$s3_list" "s3fs and a server that plays S3, for the tests on Spark"
beside "$tensorflow" "$tensorflow_list" "TensorFlow and Keras"
beside "$keras2" "$keras2_list" "Keras 2"
# MXNet's last wheel is of a time before Python 3.12, and so is the NumPy that it can do with: elsewhere its test is skipped.
case $version in 3.10 | 3.11) beside "$mxnet" "$mxnet_list" "MXNet" ;; esac
# Spark's workers are processes of an interpreter, so each pyspark has one, which finds the rest (torch, pytest, hora's wheels) in the tests' environment.
spark() { # folder, list, what
    [ ! -f "$1/.complete" ] || return 0
    echo "deps: making the Python environment of $3"
    rm -rf "$1"
    "$python" -m venv "$1"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$2"
    echo "import site; site.addsitedir('$venv/lib/python$version/site-packages')" >"$1/lib/python$version/site-packages/tests.pth"
    touch "$1/.complete"
}
spark "$spark4" "$spark4_list" "pyspark 4"
spark "$spark35" "$spark35_list" "pyspark 3.5"
go mod download
echo "deps: ready"
