#ifndef FLOTILLA_LEARNER_CUDA_BLOCK_H_
#define FLOTILLA_LEARNER_CUDA_BLOCK_H_

#include <cstdint>

#include "learner/kernels/lane.h"

// Before what a block's threads share, and before loops over what a thread keeps in
// registers. On the host memory is memory.
#ifdef __CUDA_ARCH__
#define FLOTILLA_SHARED __shared__
#define FLOTILLA_UNROLL _Pragma("unroll")
#define FLOTILLA_PRAGMA(x) _Pragma(#x)
#define FLOTILLA_UNROLL_BY(n) FLOTILLA_PRAGMA(unroll n)
#else
#define FLOTILLA_SHARED
#define FLOTILLA_UNROLL
#define FLOTILLA_UNROLL_BY(n)
#endif

namespace flotilla {
namespace {

// One of `count` blocks of threads that run a kernel. A kernel is a struct of
// pointers and numbers with
//
//   void operator()(const Block& block) const
//
// which a GPU runs on kThreads threads a block (launch.cu), and the host as loops
// over them in their order (launch.h): the same additions in the same order, so
// that both give the same bits but for what exp and log round.
class Block {
 public:
  static constexpr int kThreads = 256;

  FLOTILLA_INLINE Block(int64_t index, int64_t count)
      : index_(index), count_(count) {}

  FLOTILLA_INLINE int64_t index() const { return index_; }
  FLOTILLA_INLINE int64_t count() const { return count_; }

  // f(thread), and then all wait for all.
  template <typename F>
  FLOTILLA_INLINE void Threads(F f) const {
#ifdef __CUDA_ARCH__
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
#else
    for (int thread = 0; thread < kThreads; ++thread) f(thread);
#endif
  }

  // f(i) for this block's share of 0 .. n - 1.
  template <typename F>
  FLOTILLA_INLINE void Each(int64_t n, F f) const {
    Threads([&](int thread) { Share(thread, n, f); });
  }

  // Once a block.
  template <typename F>
  FLOTILLA_INLINE void Once(F f) const {
    Threads([&](int thread) {
      if (thread == 0) f();
    });
  }

  // f(i, sums) for the same share, which adds to N sums: each thread to its own,
  // and those to each other by halves. All threads see the `total`.
  template <int N, typename F>
  FLOTILLA_INLINE void Sum(int64_t n, double (&total)[N], F f) const {
    FLOTILLA_SHARED double lanes[N][kThreads];
    Threads([&](int thread) {
      double mine[N] = {};
      Share(thread, n, [&](int64_t i) { f(i, mine); });
      for (int j = 0; j < N; ++j) lanes[j][thread] = mine[j];
    });
    for (int half = kThreads / 2; half > 0; half /= 2) {
      Threads([&](int thread) {
        if (thread >= half) return;
        for (int j = 0; j < N; ++j) lanes[j][thread] += lanes[j][thread + half];
      });
    }
    for (int j = 0; j < N; ++j) total[j] = lanes[j][0];
    Threads([](int) {});  // before `lanes` serves another sum
  }

 private:
  template <typename F>
  FLOTILLA_INLINE void Share(int thread, int64_t n, F f) const {
    for (int64_t i = index_ * kThreads + thread; i < n;
         i += count_ * kThreads) {
      f(i);
    }
  }

  const int64_t index_, count_;
};

// What each thread of a block keeps from one Block::Threads to the next.
template <typename T>
class PerThread {
 public:
#ifdef __CUDA_ARCH__
  FLOTILLA_INLINE T& operator[](int) { return mine_; }

 private:
  T mine_;
#else
  FLOTILLA_INLINE T& operator[](int thread) { return all_[thread]; }

 private:
  T all_[Block::kThreads];
#endif
};

// How many blocks share n rows or numbers, at least one.
FLOTILLA_INLINE int64_t BlocksFor(int64_t n) {
  constexpr int64_t kMost = 1024;
  const int64_t blocks = (n + Block::kThreads - 1) / Block::kThreads;
  return blocks < 1 ? 1 : blocks > kMost ? kMost : blocks;
}

}  // namespace
}  // namespace flotilla

#endif  // FLOTILLA_LEARNER_CUDA_BLOCK_H_
