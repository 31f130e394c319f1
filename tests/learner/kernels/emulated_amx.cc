#include "tests/learner/kernels/emulated_amx.h"

#include <cstdint>
#include <cstring>

#include "glog/logging.h"
#include "learner/kernels/isa/amx_config.h"
#include "learner/kernels/isa/vec.h"

#define FLOTILLA_HAS_TILES

// In the place of isa/amx_instructions.h: Intel's Architectures Software Developer's
// Manual, volume 2, LDTILECFG, TILELOADD, TILESTORED, TILEZERO, TILERELEASE and TDPBF16PS.

namespace flotilla {
namespace {

constexpr int kRegisters = 8, kMostRows = 16, kMostRowBytes = 64;

struct Register {
  char at[kMostRows][kMostRowBytes];
};

struct Processor {
  bool configured = false;
  AmxConfig config;
  Register registers[kRegisters];
};
thread_local Processor processor;

template <int kTile>
Register& Configured() {
  static_assert(kTile >= 0 && kTile < kRegisters);
  CHECK(processor.configured && processor.config.rows[kTile] > 0) << kTile;
  return processor.registers[kTile];
}
template <int kTile>
int RowsOfTile() {
  return processor.config.rows[kTile];
}
template <int kTile>
int RowBytes() {
  return processor.config.row_bytes[kTile];
}

void AmxConfigure(const AmxConfig& config) {
  CHECK_EQ(config.palette, 1);
  CHECK_EQ(config.start_row, 0);
  for (const uint8_t byte : config.reserved) CHECK_EQ(byte, 0);
  for (int i = 0; i < 16; ++i) {
    const int rows = config.rows[i], bytes = config.row_bytes[i];
    CHECK(i < kRegisters || (rows == 0 && bytes == 0)) << i;
    CHECK(rows <= kMostRows && bytes <= kMostRowBytes) << rows << ' ' << bytes;
    CHECK_EQ(rows == 0, bytes == 0);
  }
  processor = {.configured = true, .config = config, .registers = {}};
}

void AmxRelease() { processor.configured = false; }

template <int kTile>
void AmxZero() {
  Configured<kTile>() = {};
}

template <int kTile>
void AmxLoad(const void* rows, int64_t step) {
  Register& one = Configured<kTile>();
  one = {};
  for (int r = 0; r < RowsOfTile<kTile>(); ++r) {
    std::memcpy(one.at[r], static_cast<const char*>(rows) + r * step,
                RowBytes<kTile>());
  }
}

template <int kTile>
void AmxStore(void* rows, int64_t step) {
  const Register& one = Configured<kTile>();
  for (int r = 0; r < RowsOfTile<kTile>(); ++r) {
    std::memcpy(static_cast<char*>(rows) + r * step, one.at[r],
                RowBytes<kTile>());
  }
}

float FloatOf(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// [first or second of a pair][row][pair]
struct Halves {
  explicit Halves(const Register& one) {
    for (int r = 0; r < kMostRows; ++r) {
      for (int k = 0; k < kMostPairs; ++k) {
        uint32_t pair;
        std::memcpy(&pair, &one.at[r][4 * k], sizeof(pair));
        of[0][r][k] = FloatOf(pair << 16);
        of[1][r][k] = FloatOf(pair & 0xffff0000u);
      }
    }
  }
  static constexpr int kMostPairs = kMostRowBytes / 4;
  float of[2][kMostRows][kMostPairs];
};

template <int kSums, int kLeft, int kRight>
void AmxMultiply() {
  static_assert(kSums != kLeft && kSums != kRight && kLeft != kRight);
  Register& sums = Configured<kSums>();
  const Halves left(Configured<kLeft>()), right(Configured<kRight>());
  const int rows = RowsOfTile<kSums>(), columns = RowBytes<kSums>() / 4;
  const int depth = RowBytes<kLeft>() / 4;
  CHECK_EQ(RowsOfTile<kLeft>(), rows);
  CHECK_EQ(RowsOfTile<kRight>(), depth);
  CHECK_EQ(RowBytes<kRight>(), RowBytes<kSums>());
  CHECK(RowBytes<kSums>() % 4 == 0 && RowBytes<kLeft>() % 4 == 0);
  const FlushDenormals flush;
  for (int m = 0; m < rows; ++m) {
    float halves[2][Halves::kMostPairs] = {};
    for (int half = 0; half < 2; ++half) {
      for (int k = 0; k < depth; ++k) {
        // A product of two is exact: this is rounded once, as there.
        for (int n = 0; n < columns; ++n) {
          halves[half][n] += left.of[half][m][k] * right.of[half][k][n];
        }
      }
    }
    for (int n = 0; n < columns; ++n) {
      float sum;
      std::memcpy(&sum, &sums.at[m][4 * n], sizeof(sum));
      sum += halves[0][n] + halves[1][n];
      std::memcpy(&sums.at[m][4 * n], &sum, sizeof(sum));
    }
  }
}

}  // namespace
}  // namespace flotilla

// What it is made of is above.
#include "learner/kernels/isa/amx.h"

namespace flotilla {

const KernelTable& EmulatedAmx() {
  static const KernelTable& kernels =
      *new KernelTable(ByAmx("emulated-amx", *RunnableKernels().back()));
  return kernels;
}

}  // namespace flotilla
