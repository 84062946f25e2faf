module tgp.gpu/device-plugin

go 1.26.0

require (
	go.yaml.in/yaml/v2 v2.4.4
	google.golang.org/grpc v1.81.0
	k8s.io/kubelet v0.36.3
)

require (
	golang.org/x/net v0.51.0 // indirect
	golang.org/x/sys v0.42.0 // indirect
	golang.org/x/text v0.34.0 // indirect
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260226221140-a57be14db171 // indirect
	google.golang.org/protobuf v1.36.12-0.20260120151049-f2248ac996af // indirect
)
