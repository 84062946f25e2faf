module tgp.gpu/headscale

go 1.25.5

require github.com/juanfont/headscale v0.28.0
