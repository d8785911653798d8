# shellcheck shell=bash
#
# The function of dev.sh that makes the demo key. bin is the folder of the programs.

# kept NAME: a value stored by an earlier run.
kept() { sed -n "s/^export $1='\(.*\)'$/\1/p" "$LOCAL_DIR/dev.env" 2>/dev/null || true; }

# demo_key: the key of an earlier run if the api still accepts it, else one with every scope, of a new company.
# shellcheck disable=SC2154 # bin is set in programs.sh
demo_key() {
	API_KEY=$(kept API_KEY) COMPANY_ID=$(kept COMPANY_ID)
	export API_KEY
	[[ -z $API_KEY || -z $COMPANY_ID ]] || ! "$bin/demo" -check 2>/dev/null || return 0
	COMPANY_ID=$("$bin/gatewayctl" company create --json --name "Demo $(date '+%F %T')" --default-from "Demonstração <demo@demo.example>" |
		grep -oE '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}' | head -n 1)
	API_KEY=$("$bin/gatewayctl" key create --json --company "$COMPANY_ID" \
		--scopes "$("$bin/gatewayctl" key create --help | sed -n '/^Scopes:/,/^$/s/^  //p' | paste -sd ,)" |
		grep -oE 'gw_[A-Za-z0-9_-]+' | head -n 1)
}
