#!/usr/bin/env bash
# Makes what Flotilla's mutual TLS needs, with openssl: an authority of your own
# and certificates with roles.
#
#   deploy/certs.sh DIR ca                          the authority: DIR/ca.pem, ca.key
#   deploy/certs.sh DIR token                       a shared secret: DIR/token
#   deploy/certs.sh DIR ROLE[,ROLE] NAME [HOST...]  DIR/NAME.pem and NAME.key
#
#   role         may                                        needs HOST
#   coordinator  serve as coordinator                       yes
#   envserver    serve environments, and offer them         yes
#   learner      train (and launch: `flotilla train`)       no
#   client       look on, stop, set: `flotilla status`, ...  no
#
# HOST is every name and address that others connect to. The launcher of node 0
# starts the coordinator itself, with its own certificate, which is then
# `coordinator,learner`.
#
# Run it again for the same NAME to renew: running processes take up the new
# files for their next connections. Certificates are good for CERT_DAYS (90)
# days, the authority for CA_DAYS (3650). Keep ca.key off the cluster. An
# authority or a token that is there is not replaced.
set -euo pipefail

die() { printf 'certs.sh: %s\n' "$*" >&2; exit 2; }
usage() { sed -n '2,/^set -/s/^# \{0,1\}//p' "$0"; }

case ${1:-} in
  -h | --help) usage; exit 0 ;;
esac
[[ $# -ge 2 ]] || { usage >&2; exit 2; }
dir=$1 what=$2
shift 2
umask 077
mkdir -p "$dir"
cd "$dir"
work=$(mktemp -d .new.XXXXXX)
trap 'rm -rf "$work"' EXIT

new_key() { openssl genpkey -quiet -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$work/key"; }

# publish NAME: what is in $work takes the place of what is here, at once.
publish() {
  chmod 644 "$work/pem"
  mv -f "$work/key" "$1.key"
  mv -f "$work/pem" "$1.pem"
}

case $what in
  ca)
    [[ ! -e ca.key ]] || die "$dir/ca.key exists; a new authority would void every certificate of this one"
    new_key
    openssl req -x509 -new -key "$work/key" -out "$work/pem" -days "${CA_DAYS:-3650}" \
      -subj "/CN=Flotilla authority" \
      -addext "basicConstraints=critical,CA:TRUE,pathlen:0" \
      -addext "keyUsage=critical,keyCertSign,cRLSign"
    publish ca
    exit
    ;;
  token)
    [[ ! -e token ]] ||
      die "$dir/token exists; a new one would shut out whatever runs with it: remove it first, and start everything again"
    openssl rand -hex 32 >"$work/token"
    mv -f "$work/token" token
    exit
    ;;
esac

name=${1:-}
[[ -n $name ]] || die "name the certificate: certs.sh $dir $what NAME"
[[ $name != ca && $name != token && $name =~ ^[A-Za-z0-9._-]+$ ]] || die "\"$name\" is no name for a certificate"
shift
[[ -e ca.key ]] || die "there is no $dir/ca.key; make it: certs.sh $dir ca"

usages=clientAuth
names=()
IFS=, read -ra roles <<<"$what"
for role in "${roles[@]}"; do
  case $role in
    coordinator | envserver) usages=serverAuth,clientAuth ;;
    learner | client) ;;
    *) die "\"$role\" is not one of coordinator, envserver, learner, client (or ca, token)" ;;
  esac
  names+=("URI:flotilla:role:$role")
done
[[ $usages == clientAuth || $# -gt 0 ]] || die "$what serves: name the hosts that others connect to"
for host in "$@"; do
  if [[ $host =~ ^[0-9]+(\.[0-9]+){3}$ || $host == *:* ]]; then
    names+=("IP:$host")
  else
    names+=("DNS:$host")
  fi
done

new_key
cat >"$work/extensions" <<END
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $usages
subjectAltName = $(IFS=,; printf '%s' "${names[*]}")
END
openssl req -new -key "$work/key" -subj "/CN=$name" |
  openssl x509 -req -CA ca.pem -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" \
    -days "${CERT_DAYS:-90}" -extfile "$work/extensions" -out "$work/pem" 2>"$work/log" ||
  { cat "$work/log" >&2; exit 1; }
publish "$name"
