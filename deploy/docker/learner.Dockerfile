# Learners with CUDA and NCCL, their environments and the launcher. The host
# needs NVIDIA's driver and container toolkit, and nothing of CUDA. From the root
# of a checkout:
#
#   docker build -f deploy/docker/learner.Dockerfile -t flotilla-learner:0.1.0 .
#   docker run --rm --gpus all --shm-size 8g -v "$PWD/runs:/runs" \
#     flotilla-learner:0.1.0 train cartpole_ppo --run-dir /runs/first
#
# --build-arg FLOTILLA_ATARI=AUTO builds the emulator of Atari games in. It is
# GPL-2.0: such an image is for your own use.
FROM debian:12-slim AS build
ARG FLOTILLA_ATARI=OFF
WORKDIR /opt/flotilla
COPY cmake cmake
RUN FLOTILLA_ATARI=${FLOTILLA_ATARI} cmake/setup.sh cuda && mkdir -p .deps/ale/roms
COPY . .
# Not -march=native: the image runs on other machines than the one that made it.
RUN cmake --preset cuda -B build -DFLOTILLA_BUILD_TESTS=OFF \
      -DFLOTILLA_ATARI="${FLOTILLA_ATARI}" -DFLOTILLA_MARCH=x86-64-v3 && \
    cmake --build build --target programs && \
    mkdir -p /out/build /out/.deps/ale /out/deploy && \
    cp -a build/bin /out/build/ && \
    cp -a .deps/ale/roms /out/.deps/ale/ && \
    cp -a deploy/configs /out/deploy/ && \
    site=$(echo .deps/cuda-venv/lib/python3*/site-packages) && \
    mkdir -p "/out/$site/torch" && \
    cp -a "$site/torch/lib" "/out/$site/torch/" && \
    cp -a "$site/nvidia" "/out/$site/"

FROM debian:12-slim
# tini: process 1 of a container has to reap what others leave.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends libabsl20220623 libgoogle-glog0v6 \
      libgrpc++1.51 libprotobuf32 libssl3 tini zlib1g && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home flotilla
# Where it was built: programs know LibTorch's place.
COPY --from=build /out /opt/flotilla
ENV PATH=/opt/flotilla/build/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/flotilla
ENTRYPOINT ["tini", "--", "flotilla"]
CMD ["doctor"]
