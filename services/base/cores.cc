#include "services/base/cores.h"

#include <sched.h>

#include <atomic>

namespace flotilla {
namespace {

// What the process had before PinTo.
cpu_set_t all;
std::atomic<bool> pinned = false;

}  // namespace

std::vector<int> UsableCores() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return {0};
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &mask)) cores.push_back(core);
  }
  return cores;
}

bool PinTo(const std::vector<int>& cores) {
  cpu_set_t mask, before;
  CPU_ZERO(&mask);
  for (const int core : cores) {
    if (core >= 0 && core < CPU_SETSIZE) CPU_SET(core, &mask);
  }
  if (sched_getaffinity(0, sizeof(before), &before) != 0 ||
      sched_setaffinity(0, sizeof(mask), &mask) != 0) {
    return false;
  }
  if (!pinned) all = before;
  pinned = true;
  return true;
}

void Unpin() {
  if (pinned) sched_setaffinity(0, sizeof(all), &all);
}

bool IsPinned() { return pinned; }

}  // namespace flotilla
