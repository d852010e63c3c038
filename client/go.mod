module github.com/signalbox/signalbox/client

go 1.25.0
