#include "tests/rehearsal/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "learner/torch.h"
#include "tests/rehearsal/graph.h"
#include "tests/rehearsal/stream_order.h"
#include "tests/rehearsal/strict.h"

namespace flotilla::rehearsal {
namespace {

constexpr size_t kRange = size_t{64} << 30;

char* Reserve(int protection) {
  void* range = mmap(nullptr, kRange, protection,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(range != MAP_FAILED) << "no addresses for the rehearsal device";
  return static_cast<char*>(range);
}

size_t RoundUp(size_t bytes, size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Few sizes, so that blocks find new users.
size_t BlockSize(size_t bytes) {
  constexpr size_t kMiB = size_t{1} << 20;
  return bytes <= kMiB ? RoundUp(bytes, 512) : RoundUp(bytes, kMiB / 4);
}

struct sigaction former_action;

// Says why, and leaves: the access comes again and the former action is taken.
void OnSegmentationFault(int, siginfo_t* fault, void*) {
  if (Memory::Get().HasDevice(fault->si_addr)) {
    constexpr char kWhy[] =
        "the host read or wrote memory of the rehearsal device\n";
    static_cast<void>(!write(STDERR_FILENO, kWhy, sizeof(kWhy) - 1));
  }
  sigaction(SIGSEGV, &former_action, nullptr);
}

void ExplainSegmentationFaults() {
  struct sigaction action = {};
  action.sa_sigaction = OnSegmentationFault;
  action.sa_flags = SA_SIGINFO;
  PCHECK(sigaction(SIGSEGV, &action, &former_action) == 0);
}

bool Holds(const char* range, const void* address) {
  const char* at = static_cast<const char*>(address);
  return at >= range && at < range + kRange;
}

}  // namespace

Memory& Memory::Get() {
  static auto* const memory = [] {
    auto* const made = new Memory();
    ExplainSegmentationFaults();
    return made;
  }();
  return *memory;
}

Memory::Memory()
    : device_(Reserve(PROT_NONE)), shadow_(Reserve(PROT_READ | PROT_WRITE)) {}

void* Memory::Allocate(size_t bytes) {
  if (bytes == 0) return nullptr;
  const size_t size = BlockSize(bytes);
  size_t place = 0;
  {
    MutexLock lock(&mutex_);
    std::vector<size_t>& spare = spare_[size];
    if (!spare.empty()) {
      place = spare.back();
      spare.pop_back();
    } else {
      TORCH_CHECK_WITH(OutOfMemoryError, size <= kRange - top_,
                       "the rehearsal device has no block of ", size,
                       " bytes; ", live_bytes_, " are in use");
      place = top_;
      top_ += size;
    }
    const bool held = first_held_ > 0 && IsCapturing();
    block_[place] = {size, ++last_number_, held, false};
    live_bytes_ += static_cast<int64_t>(size);
  }
  if (IsStrict()) std::memset(shadow_ + place, 0xFF, size);
  return shadow_ + place;
}

void Memory::Free(void* shadow) {
  if (shadow == nullptr) return;
  const size_t place = static_cast<char*>(shadow) - shadow_;
  StreamOrder::Get().Forget(device_ + place);
  MutexLock lock(&mutex_);
  const auto block = block_.find(place);
  CHECK(block != block_.end()) << "not a block of the rehearsal device";
  block->second.freed = true;
  if (!block->second.held) FreeLocked(place);
}

void Memory::FreeLocked(size_t place) {
  const auto block = block_.find(place);
  live_bytes_ -= static_cast<int64_t>(block->second.size);
  spare_[block->second.size].push_back(place);
  block_.erase(block);
}

void Memory::BeginHolding() {
  MutexLock lock(&mutex_);
  first_held_ = last_number_ + 1;
}

std::vector<Memory::BlockId> Memory::EndHolding() {
  MutexLock lock(&mutex_);
  std::vector<BlockId> held;
  for (const auto& [place, block] : block_) {
    if (block.held && block.number >= first_held_) {
      held.push_back({place, block.number});
    }
  }
  first_held_ = 0;
  return held;
}

void Memory::LetGo(const std::vector<BlockId>& blocks) {
  MutexLock lock(&mutex_);
  for (const BlockId& id : blocks) {
    Block& block = block_.at(id.place);
    block.held = false;
    if (block.freed) FreeLocked(id.place);
  }
}

std::optional<Memory::BlockId> Memory::OlderThanHolding(
    const void* device) const {
  if (device == nullptr) return std::nullopt;
  MutexLock lock(&mutex_);
  const size_t place = static_cast<const char*>(device) - device_;
  const auto block = block_.find(place);
  if (block == block_.end() || block->second.number >= first_held_) {
    return std::nullopt;
  }
  return BlockId{place, block->second.number};
}

bool Memory::IsLive(const BlockId& id) const {
  MutexLock lock(&mutex_);
  const auto block = block_.find(id.place);
  return block != block_.end() && block->second.number == id.number &&
         !block->second.freed;
}

bool Memory::HasDevice(const void* address) const {
  return Holds(device_, address);
}

bool Memory::HasShadow(const void* address) const {
  return Holds(shadow_, address);
}

void* Memory::ToShadow(const void* device) const {
  if (device == nullptr) return nullptr;
  CHECK(HasDevice(device)) << "not an address of the rehearsal device";
  return shadow_ + (static_cast<const char*>(device) - device_);
}

void* Memory::ToDevice(const void* shadow) const {
  if (shadow == nullptr) return nullptr;
  CHECK(HasShadow(shadow)) << "not a kernel's address";
  return device_ + (static_cast<const char*>(shadow) - shadow_);
}

void* Memory::BlockOf(const void* device) const {
  MutexLock lock(&mutex_);
  const size_t place = static_cast<const char*>(device) - device_;
  for (const auto& [begin, block] : block_) {
    if (begin <= place && place < begin + block.size) return device_ + begin;
  }
  return nullptr;
}

int64_t Memory::live_bytes() const {
  MutexLock lock(&mutex_);
  return live_bytes_;
}

}  // namespace flotilla::rehearsal
