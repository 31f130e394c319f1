#ifndef FLOTILLA_TESTS_LEARNER_COLLECTIVE_FAKE_NCCL_H_
#define FLOTILLA_TESTS_LEARNER_COLLECTIVE_FAKE_NCCL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "learner/collective/nccl_api.h"

namespace flotilla {

// What a fake NCCL needs to know of the device that ranks compute on.
//
// Thread-safe.
class FakeNcclDevice {
 public:
  virtual ~FakeNcclDevice() = default;

  struct Memory {
    const void* address = nullptr;
    size_t bytes = 0;
  };
  // The address at which the host finds what is at `device`.
  virtual void* Host(const void* device) const = 0;
  // `call` is launched on `stream`.
  virtual void Launch(const char* call, void* stream, const Memory& reads,
                      const Memory& writes) const = 0;
  // A mark in `stream`, and that the GPU has reached it.
  virtual std::shared_ptr<void> Record(void* stream) const = 0;
  virtual void Reach(const std::shared_ptr<void>& mark) const = 0;
};

// An NCCL of our own making: ranks are threads of this process, and faults are to
// order. One at a time; thread-safe.
class FakeNccl {
 public:
  // Without a device it is the host.
  explicit FakeNccl(const FakeNcclDevice* device = nullptr);
  ~FakeNccl();
  FakeNccl(const FakeNccl&) = delete;
  FakeNccl& operator=(const FakeNccl&) = delete;

  const NcclApi* api() const { return &api_; }

  // Before any rank is there.
  void set_abort_patience_ms(int ms) { api_.abort_patience_ms = ms; }

  static constexpr int kError = 3;  // any that it reports

  // How often something is still in progress when it is asked for.
  std::atomic<int> init_busy = 2;
  std::atomic<int> call_busy = 0;
  std::atomic<int> finalize_busy = 0;
  std::atomic<int> query_busy = 0;  // of all that is queued, together
  // A call is in progress until all ranks have made it: for a device whose kernels
  // run when they are launched.
  std::atomic<bool> calls_wait = false;
  // What is queued is never seen to be over.
  std::atomic<bool> never_over = false;
  std::atomic<int> async_error = 0;
  std::atomic<int> init_error = 0;
  std::atomic<int> finalize_error = 0;
  std::atomic<bool> abort_hangs = false;

  std::atomic<int> ids = 0;
  std::atomic<int> aborts = 0;  // wait() for more
  std::atomic<int> destroys = 0;

 private:
  friend struct FakeNcclCalls;

  // One call of all ranks.
  struct Round {
    struct Part {
      const char* send = nullptr;
      char* receive = nullptr;  // as `send`, or apart from it
    };
    std::map<int, Part> part;  // by rank
    bool done = false;
  };

  const FakeNcclDevice* const device_;
  NcclApi api_{};
  std::mutex mu_;
  std::map<std::string, std::map<int64_t, Round>> rounds_;
  std::set<std::string> broken_;  // by an abort
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_COLLECTIVE_FAKE_NCCL_H_
