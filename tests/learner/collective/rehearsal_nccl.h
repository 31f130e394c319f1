#ifndef FLOTILLA_TESTS_LEARNER_COLLECTIVE_REHEARSAL_NCCL_H_
#define FLOTILLA_TESTS_LEARNER_COLLECTIVE_REHEARSAL_NCCL_H_

#include <cstdint>
#include <memory>

#include "glog/logging.h"
#include "tests/learner/collective/fake_nccl.h"
#include "tests/rehearsal/memory.h"
#include "tests/rehearsal/stream_order.h"
#include "tests/rehearsal/streams.h"

namespace flotilla {

// The rehearsal device for a fake NCCL: it sums what lies there, in the order of its
// streams, and dies of what lies on the host.
class RehearsalNccl : public FakeNcclDevice {
 public:
  void* Host(const void* device) const override {
    // NCCL on a GPU cannot read what is the host's.
    CHECK(rehearsal::Memory::Get().HasDevice(device)) << "not device memory";
    return rehearsal::Memory::Get().ToShadow(device);
  }
  void Launch(const char* call, void* stream, const Memory& reads,
              const Memory& writes) const override {
    auto& order = rehearsal::StreamOrder::Get();
    order.Launch(Number(stream));
    order.Read(Number(stream), RangeOf(reads), call);
    order.Write(Number(stream), RangeOf(writes), call);
  }
  std::shared_ptr<void> Record(void* stream) const override {
    auto event = std::make_shared<rehearsal::Event>();
    rehearsal::Streams::Get().Record(Number(stream), event.get());
    return event;
  }
  void Reach(const std::shared_ptr<void>& mark) const override {
    rehearsal::Streams::Get().Finish(
        *static_cast<rehearsal::Event*>(mark.get()));
  }

 private:
  static int64_t Number(void* stream) {
    return reinterpret_cast<int64_t>(stream);
  }
  static rehearsal::StreamOrder::Range RangeOf(const Memory& memory) {
    const void* block = rehearsal::Memory::Get().BlockOf(memory.address);
    const int64_t begin = static_cast<const char*>(memory.address) -
                          static_cast<const char*>(block);
    return {block, begin, begin + static_cast<int64_t>(memory.bytes)};
  }
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_LEARNER_COLLECTIVE_REHEARSAL_NCCL_H_
