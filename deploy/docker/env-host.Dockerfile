# Environments and the coordinator, for hosts without GPUs: the wheel flotilla-envhost,
# no Torch, no CUDA. From the root of a checkout:
#
#   docker build -f deploy/docker/env-host.Dockerfile -t flotilla-env-host:0.1.0 .
#   docker run --rm flotilla-env-host:0.1.0 envs
#
# The emulator of Atari games (GPL-2.0) is not in it.
FROM debian:12-slim AS build
# Debian's stable release is the version that we build with.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends ca-certificates cmake g++ libabsl-dev \
      libgoogle-glog-dev libgrpc++-dev libprotobuf-dev libssl-dev ninja-build \
      nlohmann-json3-dev pkg-config protobuf-compiler protobuf-compiler-grpc python3-venv \
      zlib1g-dev && \
    rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN python3 -m venv .deps/wheelvenv && \
    .deps/wheelvenv/bin/pip install --no-cache-dir -r cmake/requirements/wheel.txt && \
    cmake --preset wheel -DFLOTILLA_BUILD_LEARNER=OFF && \
    cmake --build --preset wheel && \
    cmake/wheel/pack.sh build-wheel /wheels

FROM debian:12-slim
# tini: process 1 of a container has to reap what others leave.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends python3-venv tini && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home flotilla
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/flotilla && \
    /opt/flotilla/bin/pip install --no-cache-dir /wheels/flotilla_envhost-*.whl
ENV PATH=/opt/flotilla/bin:$PATH
USER 10001:10001
WORKDIR /home/flotilla
ENTRYPOINT ["tini", "--", "flotilla"]
CMD ["serve-envs", "--help"]
