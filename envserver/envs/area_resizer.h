#ifndef FLOTILLA_ENVSERVER_ENVS_AREA_RESIZER_H_
#define FLOTILLA_ENVSERVER_ENVS_AREA_RESIZER_H_

#include <cstdint>
#include <vector>

namespace flotilla {

// Shrinks gray frames as OpenCV's resize with INTER_AREA does, bit for bit:
// each output pixel is the mean of the area it covers, in float, first along
// rows and then down columns, rounded half to even.
//
// Not for sizes that shrink by an integer both ways, where OpenCV computes
// otherwise. Not thread-safe.
class AreaResizer {
 public:
  // Both sides shrink or stay.
  AreaResizer(int source_height, int source_width, int height, int width);

  // `source` is [source_height, source_width], `out` [height, width].
  void Resize(const uint8_t* source, uint8_t* out);

 private:
  // One source row or column and its share in one of the output.
  struct Tap {
    int out;
    int source;
    float weight;
  };
  static std::vector<Tap> MakeTaps(int source_size, int size);

  // Output columns go in blocks of a vector's width. Tap k of a block's columns
  // lies within two vectors of the source from `base` on, unless the frame
  // shrinks a lot.
  static constexpr int kBlock = 16;
  struct BlockTap {
    int base;
    int32_t offset[kBlock];  // from base
    float weight[kBlock];    // unused taps weigh nothing
  };
  void ShrinkRow(const uint8_t* source);
  void StoreRow(uint8_t* out) const;

  const int source_width_;
  const int width_;
  const int blocks_;
  const std::vector<Tap> rows_;    // by output row
  int taps_ = 0;                   // most of one output column
  bool near_ = true;               // all offsets are below 2 * kBlock
  std::vector<BlockTap> columns_;  // [blocks_, taps_]

  std::vector<float> wide_;    // a source row, padded
  std::vector<float> shrunk_;  // the same, [blocks_ * kBlock]
  std::vector<float> sum_;     // of the output row, likewise
};

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_AREA_RESIZER_H_
