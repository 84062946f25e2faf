module tgp.gpu/tailscale

go 1.26.6

require tailscale.com v1.102.5
