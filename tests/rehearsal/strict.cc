#include "tests/rehearsal/strict.h"

#include <atomic>

namespace flotilla::rehearsal {
namespace {

std::atomic<int> scopes = 0;

}  // namespace

Strict::Strict() { ++scopes; }
Strict::~Strict() { --scopes; }

bool IsStrict() { return scopes > 0; }

}  // namespace flotilla::rehearsal
