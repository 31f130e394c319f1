# Environments and the coordinator, for hosts without GPUs: no Torch, no CUDA,
# about 100 MB. From the root of a checkout:
#
#   docker build -f deploy/docker/env-host.Dockerfile -t flotilla-env-host:0.1.0 .
#   docker run --rm flotilla-env-host:0.1.0 envs
#
# The emulator of Atari games (GPL-2.0) is not in it.
FROM debian:12-slim AS build
ENV FLOTILLA_ATARI=OFF
# Debian's stable release is the version that we build with.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates cmake g++ libabsl-dev \
      libgoogle-glog-dev libgrpc++-dev libprotobuf-dev libssl-dev ninja-build \
      nlohmann-json3-dev pkg-config protobuf-compiler protobuf-compiler-grpc zlib1g-dev && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The same self-contained folder that `cmake --build ... --target package` packs.
RUN cmake --preset envserver -B /build -DFLOTILLA_BUILD_TESTS=OFF && \
    cmake --build /build --target programs && \
    cmake --install /build --component envhost --strip --prefix /opt/flotilla

FROM debian:12-slim
# tini: process 1 of a container has to reap what others leave.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends tini && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home flotilla
COPY --from=build /opt/flotilla /opt/flotilla
ENV PATH=/opt/flotilla/bin:$PATH
USER 10001:10001
WORKDIR /home/flotilla
ENTRYPOINT ["tini", "--", "flotilla"]
CMD ["serve-envs", "--help"]
