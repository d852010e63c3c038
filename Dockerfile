# One static binary and folders for its state and certificates: nothing else is in the image.
# The build runs on the machine's own architecture, and compiles for that of the image: that of
# docker buildx build --platform linux/amd64,linux/arm64. The classic builder sets neither
# argument, and makes an image for its machine.
FROM --platform=${BUILDPLATFORM:-linux} golang:1.26-bookworm AS build
LABEL org.signalbox.stage=build
WORKDIR /src
COPY go.mod go.sum ./
COPY client/go.mod client/
RUN go mod download
COPY . .
ARG VERSION=
ARG TARGETOS
ARG TARGETARCH
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -buildvcs=false -ldflags "-s -w -X main.stamped=${VERSION:-$(sh scripts/commit.sh)}" -o /out/signalbox ./cmd/signalbox \
 && mkdir -p /out/data /out/secrets /out/authority

FROM scratch
ARG VERSION=
LABEL org.opencontainers.image.title=signalbox org.opencontainers.image.source=https://github.com/signalbox/signalbox \
  org.opencontainers.image.licenses=MIT org.opencontainers.image.version=$VERSION
COPY --from=build /out/signalbox /signalbox
# A new volume takes over the owner of the folder that it is mounted on.
COPY --from=build --chown=65532:65532 /out/data /data
COPY --from=build --chown=65532:65532 /out/secrets /secrets
COPY --from=build --chown=65532:65532 /out/authority /authority
USER 65532:65532
ENV SIGNALBOX_DATA=/data SIGNALBOX_HTTP=0.0.0.0:8701
VOLUME /data
EXPOSE 8701
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=2s --timeout=3s --start-period=30s --retries=5 CMD ["/signalbox", "healthcheck"]
ENTRYPOINT ["/signalbox"]
CMD ["serve"]
