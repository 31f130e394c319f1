"""python flotilla_video --frames PIPE --out FILE: encodes frames as they come.

`flotilla replay --video` starts it. A frame is its width and height (uint32, little-endian) and its pixels, RGB, row by
row; 0 x 0 says that all have come, and only then is there a file.
"""

import argparse
import os
import pathlib
import struct
import sys
import threading

_LEAST = 256  # pixels of the smaller side: smaller pictures are drawn larger


class Failed(Exception):
    """What went wrong, in words for people."""


def _needed(out):
    return ("av", "PIL") if out.suffix.lower() == ".mp4" else ("PIL",)


def _check_packages(out):
    packages = {"av": "av", "PIL": "pillow"}
    for name in _needed(out):
        try:
            __import__(name)
        except ImportError as error:
            install = " ".join(packages[each] for each in _needed(out))
            kinds = "" if out.suffix.lower() != ".mp4" else "; .webp and .gif need pillow alone"
            raise Failed(
                f"a {out.suffix} needs {install} in {sys.executable} ({error}); run: {sys.executable} -m pip install "
                f"{install}, or set FLOTILLA_PYTHON to a Python that has them{kinds}"
            ) from None


def _exactly(pipe, size):
    data = pipe.read(size)
    if len(data) != size:
        raise Failed("the frames end in the middle: nobody closed the video")
    return data


def frames(pipe):
    """Images, all of the first one's size, at least _LEAST pixels high and wide."""
    from PIL import Image

    first = None
    while True:
        size = struct.unpack("<II", _exactly(pipe, 8))
        if size == (0, 0):
            return
        image = Image.frombytes("RGB", size, _exactly(pipe, 3 * size[0] * size[1]))
        first = first or size
        if size != first:
            raise Failed(f"a frame is {size[0]} x {size[1]}, and the first was {first[0]} x {first[1]}")
        times = max(1, -(-_LEAST // min(size)))
        yield image.resize((size[0] * times, size[1] * times), Image.NEAREST) if times > 1 else image


def write_mp4(images, path, fps):
    import fractions

    import av

    with av.open(str(path), "w", format="mp4", options={"movflags": "+faststart"}) as video:
        stream = None
        for image in images:
            # H.264 has pixels in blocks of two by two.
            image = image.crop((0, 0, image.width + image.width % 2, image.height + image.height % 2))
            if stream is None:
                stream = video.add_stream("h264", rate=fractions.Fraction(fps).limit_denominator(1000))
                stream.width, stream.height = image.size
                stream.pix_fmt = "yuv420p"
                stream.options = {"crf": "20"}
            video.mux(stream.encode(av.VideoFrame.from_image(image)))
        video.mux(stream.encode())


def write_pictures(images, path, fps, kind):
    first = next(images)
    how = {"webp": {"quality": 80, "method": 4}, "gif": {"optimize": True}}[kind]
    first.save(path, kind, save_all=True, append_images=images, duration=max(1, round(1000 / fps)), loop=0, **how)


def end_with_parent(partial):
    """From here on this process ends, without what there is at `partial`, once the one that started it is gone
    (services/base/lifeline.h): the pipe may not be open by then, or have given all frames."""
    lifeline = os.environ.pop("FLOTILLA_LIFELINE_FD", None)
    if lifeline is None:
        return
    descriptor = int(lifeline)

    def watch():
        os.read(descriptor, 1)  # nobody writes
        partial.unlink(missing_ok=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def encode(pipe, out, partial, fps):
    images = frames(pipe)
    try:
        if out.suffix.lower() == ".mp4":
            write_mp4(images, partial, fps)
        else:
            write_pictures(images, partial, fps, out.suffix.lower()[1:])
        for _ in images:  # what an encoder has not asked for
            pass
        os.replace(partial, out)
    finally:
        partial.unlink(missing_ok=True)


def main():
    parser = argparse.ArgumentParser(prog="flotilla_video", description="Encodes frames that come through a pipe.")
    parser.add_argument("--frames", required=True, help="the pipe")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="a .mp4, .webp or .gif")
    parser.add_argument("--fps", type=float, default=30, help="frames a second")
    parser.add_argument("--error-file", help="write here what went wrong")
    flags = parser.parse_args()
    try:
        partial = flags.out.with_name(f".{flags.out.name}.{os.getpid()}")
        end_with_parent(partial)
        _check_packages(flags.out)
        with open(flags.frames, "rb") as pipe:
            encode(pipe, flags.out, partial, flags.fps)
    except (Failed, OSError, ValueError) as error:
        message = str(error) if isinstance(error, Failed) else f"cannot write {flags.out}: {error}"
        if flags.error_file:
            pathlib.Path(flags.error_file).write_text(message + "\n")
        print(f"flotilla_video: {message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
