module tgp.gpu/schematic

go 1.26.6

require github.com/siderolabs/image-factory v1.0.3

require (
	github.com/siderolabs/gen v0.8.7 // indirect
	github.com/siderolabs/talos/pkg/machinery v1.13.9 // indirect
	go.yaml.in/yaml/v4 v4.0.0-rc.4 // indirect
)
