# Learners with CUDA and NCCL, their environments and the launcher: the wheel flotilla, and
# what pip pulls for it. The host needs NVIDIA's driver and container toolkit, and nothing of
# CUDA. From the root of a checkout:
#
#   docker build -f deploy/docker/learner.Dockerfile -t flotilla-learner:0.1.0 .
#   mkdir -p runs   # yours, and so is what is written there
#   docker run --rm --gpus all --shm-size 8g --stop-timeout 90 --user "$(id -u):$(id -g)" \
#     -v "$PWD/runs:/runs" flotilla-learner:0.1.0 train cartpole_ppo --run-dir /runs/first
#
# --build-arg FLOTILLA_ATARI=ON builds the emulator of Atari games in. It is
# GPL-2.0: such an image is for your own use.
FROM debian:12-slim AS build
ENV FLOTILLA_CUDA=1
WORKDIR /src
COPY cmake cmake
RUN FLOTILLA_ATARI=OFF cmake/setup.sh wheel
COPY . .
RUN cmake --preset wheel -DFLOTILLA_CUDA=ON && \
    cmake --build --preset wheel && \
    cmake/wheel/pack.sh build-wheel /wheels
ARG FLOTILLA_ATARI=OFF
RUN mkdir -p /opt/atari && \
    if [ "${FLOTILLA_ATARI}" != OFF ]; then build-wheel/share/flotilla/atari/install.sh /opt/atari; fi

FROM debian:12-slim
# tini: process 1 of a container has to reap what others leave.
# hadolint ignore=DL3008
RUN apt-get update && \
    apt-get install -y --no-install-recommends python3-venv tini && \
    rm -rf /var/lib/apt/lists/* && \
    useradd --uid 10001 --create-home flotilla
COPY --from=build /wheels /wheels
RUN python3 -m venv /opt/flotilla && \
    /opt/flotilla/bin/pip install --no-cache-dir /wheels/flotilla-*.whl
COPY --from=build /opt/atari /opt/atari
ENV PATH=/opt/flotilla/bin:$PATH \
    FLOTILLA_ATARI_LIBRARY=/opt/atari/libflotilla_atari.so \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /home/flotilla
ENTRYPOINT ["tini", "--", "flotilla"]
CMD ["doctor"]
