#include "tests/rehearsal/streams.h"

#include <ATen/ops/copy_native.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/rehearsal/counters.h"

namespace flotilla::rehearsal {
namespace {

thread_local int64_t current = 0;

// `source` as a pageable tensor of its own.
at::Tensor Taken(const at::Tensor& source) {
  const at::Tensor taken = at::empty(source.sizes(), source.options());
  at::Tensor target = taken;
  return at::native::copy_(target, source, /*non_blocking=*/false);
}

bool SameBytes(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  return std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

void Poison(const at::Tensor& host) {
  const at::Tensor poison = at::empty(host.sizes(), host.options());
  std::memset(poison.mutable_data_ptr(), 0xFF, poison.nbytes());
  at::Tensor target = host;
  at::native::copy_(target, poison, /*non_blocking=*/false);
}

}  // namespace

Streams& Streams::Get() {
  static auto* const streams = new Streams();
  return *streams;
}

int64_t Streams::Current() { return current; }
int64_t Streams::SetCurrent(int64_t stream) {
  return std::exchange(current, stream);
}

int64_t Streams::Make() {
  MutexLock lock(&mutex_);
  return ++last_made_;
}

void Streams::Record(int64_t stream, Event* event) {
  MutexLock lock(&mutex_);
  *event = {stream, ++streams_[stream].position,
            StreamOrder::Get().Record(stream),
            std::chrono::steady_clock::now()};
}

void Streams::Block(int64_t stream, const Event& event) {
  MutexLock lock(&mutex_);
  StreamOrder::Get().Block(stream, event.clock);
  Stream& blocked = streams_[stream];
  blocked.waits.push_back({++blocked.position, event});
}

void Streams::CopyToHostLate(const at::Tensor& host, const at::Tensor& values) {
  AddLate(host, Taken(values.expand(host.sizes())), /*to_host=*/true);
}

void Streams::CopyFromHostLate(const at::Tensor& host) {
  AddLate(host, Taken(host), /*to_host=*/false);
}

void Streams::AddLate(const at::Tensor& host, const at::Tensor& values,
                      bool to_host) {
  MutexLock lock(&mutex_);
  Stream& stream = streams_[Current()];
  // The stream's own order holds without a wait: an earlier copy of the same
  // memory is over before this one begins.
  int64_t same_memory = 0;
  for (const LateCopy& earlier : stream.late) {
    if (earlier.host.is_alias_of(host)) same_memory = earlier.position;
  }
  FinishLocked(Current(), same_memory);
  if (to_host) Poison(host);
  stream.late.push_back({++stream.position, host, values, to_host});
}

void Streams::Finish(const Event& event) {
  StreamOrder::Get().HostWaited(event.clock);
  MutexLock lock(&mutex_);
  FinishLocked(event.stream, event.position);
}

void Streams::Finish(int64_t stream) {
  StreamOrder::Get().HostWaited(StreamOrder::Get().Record(stream));
  MutexLock lock(&mutex_);
  FinishLocked(stream, kEverything);
}

void Streams::FinishAll() {
  StreamOrder::Get().HostWaitedForAll();
  MutexLock lock(&mutex_);
  for (const auto& [stream, unused] : streams_) {
    FinishLocked(stream, kEverything);
  }
}

void Streams::FinishLocked(int64_t stream, int64_t position) {
  Stream& finished = streams_[stream];
  const auto over = [position](const auto& issued) {
    return issued.position <= position;
  };
  // Both are in the order in which they were issued.
  const auto copies =
      std::partition_point(finished.late.begin(), finished.late.end(), over);
  std::for_each(finished.late.begin(), copies, End);
  finished.late.erase(finished.late.begin(), copies);
  const auto waits =
      std::partition_point(finished.waits.begin(), finished.waits.end(), over);
  const std::vector<Wait> passed(finished.waits.begin(), waits);
  finished.waits.erase(finished.waits.begin(), waits);
  for (const Wait& wait : passed) {
    FinishLocked(wait.event.stream, wait.event.position);
  }
}

void Streams::End(const LateCopy& copy) {
  if (copy.to_host) {
    at::Tensor host = copy.host;
    at::native::copy_(host, copy.values, /*non_blocking=*/false);
  } else if (!SameBytes(copy.host, copy.values)) {
    Count(&Counts::overwritten_sources);
    TORCH_WARN("rehearsal: a pinned ", copy.host.scalar_type(), " tensor ",
               copy.host.sizes(),
               " changed before its copy to the device was known to be over");
  }
}

}  // namespace flotilla::rehearsal
