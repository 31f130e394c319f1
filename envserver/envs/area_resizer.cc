#include "envserver/envs/area_resizer.h"

#include <glog/logging.h>

#ifdef __AVX512F__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>

namespace flotilla {

AreaResizer::AreaResizer(int source_height, int source_width, int height,
                         int width)
    : source_width_(source_width),
      width_(width),
      blocks_((width + kBlock - 1) / kBlock),
      rows_(MakeTaps(source_height, height)),
      wide_(source_width + 2 * kBlock),
      shrunk_(blocks_ * kBlock),
      sum_(blocks_ * kBlock) {
  CHECK(height >= 1 && height <= source_height);
  CHECK(width >= 1 && width <= source_width);
  std::vector<std::vector<Tap>> columns(blocks_ * kBlock);
  for (const Tap& tap : MakeTaps(source_width, width)) {
    columns[tap.out].push_back(tap);
    taps_ = std::max(taps_, static_cast<int>(columns[tap.out].size()));
  }
  for (int block = 0; block < blocks_; ++block) {
    for (int k = 0; k < taps_; ++k) {
      BlockTap& taps = columns_.emplace_back();
      taps.base = columns[block * kBlock][0].source;
      for (int i = 0; i < kBlock; ++i) {
        const std::vector<Tap>& column = columns[block * kBlock + i];
        const bool used = k < static_cast<int>(column.size());
        taps.offset[i] = used ? column[k].source - taps.base : 0;
        taps.weight[i] = used ? column[k].weight : 0;
        if (taps.offset[i] >= 2 * kBlock) near_ = false;
      }
    }
  }
}

// As computeResizeAreaTab in OpenCV's resize.cpp, rounding for rounding.
std::vector<AreaResizer::Tap> AreaResizer::MakeTaps(int source_size, int size) {
  const double scale = static_cast<double>(source_size) / size;
  constexpr double kTiny = 1e-3;
  std::vector<Tap> taps;
  for (int i = 0; i < size; ++i) {
    const double begin = i * scale;
    const double end = begin + scale;
    const double cell = std::min(scale, source_size - begin);
    const int last =
        std::min(static_cast<int>(std::floor(end)), source_size - 1);
    const int first = std::min(static_cast<int>(std::ceil(begin)), last);
    if (first - begin > kTiny) {
      taps.push_back(
          {i, first - 1, static_cast<float>((first - begin) / cell)});
    }
    for (int source = first; source < last; ++source) {
      taps.push_back({i, source, static_cast<float>(1.0 / cell)});
    }
    if (end - last > kTiny) {
      taps.push_back({i, last,
                      static_cast<float>(
                          std::min(std::min(end - last, 1.0), cell) / cell)});
    }
  }
  return taps;
}

void AreaResizer::ShrinkRow(const uint8_t* source) {
  for (int x = 0; x < source_width_; ++x) wide_[x] = source[x];
  for (int block = 0; block < blocks_; ++block) {
    const BlockTap* taps = &columns_[block * taps_];
    const float* wide = wide_.data() + taps->base;
    float* shrunk = shrunk_.data() + block * kBlock;
#ifdef __AVX512F__
    if (near_) {  // much faster than a gather
      const __m512 low = _mm512_loadu_ps(wide);
      const __m512 high = _mm512_loadu_ps(wide + kBlock);
      __m512 sum = _mm512_setzero_ps();
      for (int k = 0; k < taps_; ++k) {
        const __m512 picked = _mm512_permutex2var_ps(
            low, _mm512_loadu_si512(taps[k].offset), high);
        sum = _mm512_add_ps(
            sum, _mm512_mul_ps(picked, _mm512_loadu_ps(taps[k].weight)));
      }
      _mm512_storeu_ps(shrunk, sum);
      continue;
    }
#endif
    std::fill_n(shrunk, kBlock, 0.0f);
    for (int k = 0; k < taps_; ++k) {
      for (int i = 0; i < kBlock; ++i) {
        shrunk[i] += wide[taps[k].offset[i]] * taps[k].weight[i];
      }
    }
  }
}

void AreaResizer::StoreRow(uint8_t* out) const {
  // Adding 1.5 * 2^23 rounds half to even and leaves the integer in the low
  // bits: lrint, which compilers do not vectorize.
  constexpr float kMagic = 12582912.0f;
  for (int x = 0; x < width_; ++x) {
    const float rounded = (sum_[x] + kMagic) - kMagic;
    out[x] = static_cast<uint8_t>(std::min(rounded, 255.0f));
  }
}

void AreaResizer::Resize(const uint8_t* source, uint8_t* out) {
  int row = 0;
  int shrunk_source = -1;
  std::fill(sum_.begin(), sum_.end(), 0.0f);
  for (const Tap& tap : rows_) {
    if (tap.out != row) {
      StoreRow(out + row * width_);
      std::fill(sum_.begin(), sum_.end(), 0.0f);
      row = tap.out;
    }
    if (tap.source != shrunk_source) {
      ShrinkRow(source + tap.source * source_width_);
      shrunk_source = tap.source;
    }
    for (size_t x = 0; x < sum_.size(); ++x) sum_[x] += tap.weight * shrunk_[x];
  }
  StoreRow(out + row * width_);
}

}  // namespace flotilla
