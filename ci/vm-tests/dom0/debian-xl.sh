#!/bin/sh
# Do Debian's unmodified daemons and xl drive this hypervisor?
. /xt/lib.sh
. /xt/tests/debian-start.sh
xl info || fail "xl info"
