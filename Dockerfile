# The gateway as a static binary on an otherwise empty file system:
#
#   docker build --build-arg VERSION=$(git describe --tags --always --dirty) -t turnpike .
#
# docs/install.md describes the image, and how to add programs such as Node.
FROM --platform=$BUILDPLATFORM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH
# What "turnpike --version" prints.
ARG VERSION=
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath -tags grpcnotrace \
      -ldflags "-s -w -X github.com/turnpike-gateway/turnpike/internal/app.release=$VERSION" \
      -o /image/usr/local/bin/turnpike ./cmd/turnpike
# Root certificates for the APIs of providers, the name of the user, a directory
# for the configuration and one for temporary files; and the volume.
RUN mkdir -p /image/etc/ssl/certs /image/etc/turnpike /image/tmp /volume/data && \
    cp /etc/ssl/certs/ca-certificates.crt /image/etc/ssl/certs/ && \
    echo 'turnpike:x:65532:65532:Turnpike:/data:/sbin/nologin' > /image/etc/passwd && \
    echo 'turnpike:x:65532:' > /image/etc/group && \
    chmod 1777 /image/tmp && \
    chmod 0700 /volume/data

FROM scratch
COPY --from=build /image/ /
COPY --from=build --chown=65532:65532 /volume/ /
# These variables override the configuration file. TURNPIKE_URL is for commands in
# the container: health, keys, secrets, runs cancel.
ENV TURNPIKE_LISTEN=0.0.0.0:8080 \
    TURNPIKE_DATA=/data/turnpike \
    TURNPIKE_URL=http://127.0.0.1:8080
EXPOSE 8080
VOLUME /data
# "turnpike serve" reads turnpike.yaml in this directory, if it is there.
WORKDIR /etc/turnpike
USER 65532:65532
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s --retries=3 \
  CMD ["/usr/local/bin/turnpike", "health"]
ENTRYPOINT ["/usr/local/bin/turnpike"]
CMD ["serve"]
