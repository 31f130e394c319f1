#include "tests/rehearsal/stream_order.h"

#include <algorithm>

#include "learner/torch.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/streams.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

void Merge(const StreamClock& from, StreamClock* to) {
  for (const auto& [stream, position] : from) {
    (*to)[stream] = std::max((*to)[stream], position);
  }
}

// Of a tensor's memory, gaps included; nothing of what is not the device's.
StreamOrder::Range RangeOf(const at::Tensor& t) {
  if (!t.defined() || !t.is_privateuseone() || t.numel() == 0) return {};
  int64_t elements = 1;
  for (int64_t d = 0; d < t.dim(); ++d) {
    elements += (t.size(d) - 1) * t.stride(d);
  }
  const auto item = static_cast<int64_t>(t.itemsize());
  const int64_t begin = t.storage_offset() * item;
  return {t.storage().data(), begin, begin + elements * item};
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

void StreamOrder::Read(int64_t stream, const Range& range,
                       const std::string& op) {
  if (range.block == nullptr || !IsStrict()) return;
  MutexLock lock(&mutex_);
  MemoryBlock& b = blocks_[range.block];
  const Access now = {stream, clock_[stream][stream], range, op};
  Check(now, b.writes, "reads what", "wrote");
  std::erase_if(b.reads, [&](const Access& before) {
    return before.stream == stream && range.Covers(before.range);
  });
  b.reads.push_back(now);
}

void StreamOrder::Write(int64_t stream, const Range& range,
                        const std::string& op) {
  if (range.block == nullptr || !IsStrict()) return;
  MutexLock lock(&mutex_);
  MemoryBlock& b = blocks_[range.block];
  const Access now = {stream, clock_[stream][stream], range, op};
  Check(now, b.writes, "writes what", "wrote");
  Check(now, b.reads, "writes what", "reads");
  const auto covered = [&](const Access& before) {
    return range.Covers(before.range);
  };
  std::erase_if(b.writes, covered);
  std::erase_if(b.reads, covered);
  b.writes.push_back(now);
}

void StreamOrder::Forget(const void* block) {
  MutexLock lock(&mutex_);
  blocks_.erase(block);
}

void StreamOrder::Check(const Access& now, const std::vector<Access>& all,
                        const char* does, const char* did) {
  for (const Access& before : all) {
    if (before.stream == now.stream || !before.range.Overlaps(now.range) ||
        clock_[now.stream][before.stream] >= before.position) {
      continue;
    }
    Count(&Counts::missing_events);
    TORCH_WARN("rehearsal: a missing event: ", now.op, " on stream ",
               now.stream, " ", does, " ", before.op, " on stream ",
               before.stream, " ", did, ", and does not wait for it");
  }
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
  Touched touched = {op, {}, {}};
  for (const at::Tensor& t : reads) touched.reads.push_back(RangeOf(t));
  for (const at::Tensor& t : writes) touched.writes.push_back(RangeOf(t));
  LaunchOn(touched);
  RecordTouched(std::move(touched));
}

void LaunchOn(const Touched& touched) {
  StreamOrder& order = StreamOrder::Get();
  const int64_t stream = Streams::Current();
  order.Launch(stream);
  for (const auto& range : touched.reads) {
    order.Read(stream, range, touched.op);
  }
  for (const auto& range : touched.writes) {
    order.Write(stream, range, touched.op);
  }
}

}  // namespace flotilla::rehearsal
