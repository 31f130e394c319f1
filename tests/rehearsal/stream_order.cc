#include "tests/rehearsal/stream_order.h"

#include <algorithm>

#include "learner/torch.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/streams.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

void Merge(const StreamClock& from, StreamClock* to) {
  for (const auto& [stream, position] : from) {
    (*to)[stream] = std::max((*to)[stream], position);
  }
}

}  // namespace

StreamOrder& StreamOrder::Get() {
  static auto* const order = new StreamOrder();
  return *order;
}

void StreamOrder::Launch(int64_t stream) {
  MutexLock lock(&mutex_);
  Merge(host_, &clock_[stream]);
  ++clock_[stream][stream];
}

void StreamOrder::Read(int64_t stream, const void* block,
                       const std::string& op) {
  if (block == nullptr || !IsStrict()) return;
  MutexLock lock(&mutex_);
  MemoryBlock& b = blocks_[block];
  Check(stream, b.write, op, "reads what", "wrote");
  b.read[stream] = {stream, clock_[stream][stream], op};
}

void StreamOrder::Write(int64_t stream, const void* block,
                        const std::string& op) {
  if (block == nullptr || !IsStrict()) return;
  MutexLock lock(&mutex_);
  MemoryBlock& b = blocks_[block];
  Check(stream, b.write, op, "writes what", "wrote");
  for (const auto& [other, access] : b.read) {
    Check(stream, access, op, "writes what", "reads");
  }
  b.read.clear();
  b.write = {stream, clock_[stream][stream], op};
}

void StreamOrder::Forget(const void* block) {
  MutexLock lock(&mutex_);
  blocks_.erase(block);
}

void StreamOrder::Check(int64_t stream, const Access& before,
                        const std::string& op, const char* does,
                        const char* did) {
  if (before.position == 0 || before.stream == stream) return;
  if (clock_[stream][before.stream] >= before.position) return;
  Count(&Counts::missing_events);
  TORCH_WARN("rehearsal: a missing event: ", op, " on stream ", stream, " ",
             does, " ", before.op, " on stream ", before.stream, " ", did,
             ", and does not wait for it");
}

StreamClock StreamOrder::Record(int64_t stream) {
  MutexLock lock(&mutex_);
  Merge(host_, &clock_[stream]);
  return clock_[stream];
}

void StreamOrder::Block(int64_t stream, const StreamClock& event) {
  MutexLock lock(&mutex_);
  Merge(event, &clock_[stream]);
}

void StreamOrder::HostWaited(const StreamClock& event) {
  MutexLock lock(&mutex_);
  Merge(event, &host_);
}

void StreamOrder::HostWaitedForAll() {
  MutexLock lock(&mutex_);
  for (const auto& [stream, clock] : clock_) Merge(clock, &host_);
}

void LaunchOn(const std::string& op, at::TensorList reads,
              at::TensorList writes) {
  if (!IsStrict()) return;
  StreamOrder& order = StreamOrder::Get();
  const int64_t stream = Streams::Current();
  order.Launch(stream);
  const auto block = [](const at::Tensor& t) -> const void* {
    return t.defined() && t.is_privateuseone() ? t.storage().data() : nullptr;
  };
  for (const at::Tensor& t : reads) order.Read(stream, block(t), op);
  for (const at::Tensor& t : writes) order.Write(stream, block(t), op);
}

}  // namespace flotilla::rehearsal
