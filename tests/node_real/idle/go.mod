module tgp.gpu/idle

go 1.22
