#!/usr/bin/env bash
# Runs all tests. They start their own Redis, so a redis-server binary must be on the PATH; where
# there is none, it is installed from the distribution's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

as_root() {
  if [ "$(id -u)" -eq 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    echo "test.sh: '$*' needs root, and there is no sudo" >&2
    return 1
  fi
}

install_redis() {
  if command -v apt-get >/dev/null; then
    as_root apt-get update && as_root env DEBIAN_FRONTEND=noninteractive \
      apt-get install --yes --no-install-recommends redis-server
  elif command -v dnf >/dev/null; then
    # Newer releases have its drop-in fork instead.
    as_root dnf install --assumeyes redis ||
      as_root dnf install --assumeyes valkey valkey-compat-redis
  elif command -v apk >/dev/null; then
    as_root apk add redis
  elif command -v brew >/dev/null; then
    brew install redis
  else
    echo "test.sh: no package manager that is known here (apt-get, dnf, apk, brew)" >&2
    return 1
  fi
}

# Debian keeps servers out of an ordinary user's PATH on some setups.
PATH="$PATH:/usr/sbin:/usr/local/sbin"

if ! command -v redis-server >/dev/null; then
  echo "test.sh: no redis-server found, installing it"
  if ! install_redis || ! command -v redis-server >/dev/null; then
    cat >&2 <<'HELP'
test.sh: the tests need a redis-server binary (Redis 6.2 or newer) and it could not be installed.
Install the package `redis-server` or `redis` of your system, or put a binary of that name on the
PATH, and run this script again. No server needs to be running.
HELP
    exit 1
  fi
fi

if ! command -v cargo >/dev/null; then
  echo "test.sh: no cargo found; install Rust from https://rustup.rs" >&2
  exit 1
fi

exec cargo test --locked "$@"
