#ifndef FLOTILLA_SERVICES_COORDINATOR_CHANGE_LIST_H_
#define FLOTILLA_SERVICES_COORDINATOR_CHANGE_LIST_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "flotilla/v1/coordinator.pb.h"

namespace flotilla {

// What one run is asked to change, at most: everybody is told all of it.
constexpr size_t kMaxChanges = 100;
constexpr size_t kMaxChangeBytes = 1 << 10;

// Errors: kInvalidArgument, if these are not what ranks can have agreed on.
absl::Status CheckAgreed(
    const google::protobuf::RepeatedPtrField<v1::Change>& changes);

// The changes of one run: those that its ranks have agreed on, and behind them
// those that they have not yet. The ranks' word counts, and outlives whoever
// keeps this list.
//
// Not thread-safe.
class ChangeList {
 public:
  using Changes = google::protobuf::RepeatedPtrField<v1::Change>;

  // One more, not agreed on. Returns a ticket to find it by, whatever number it
  // comes to have. Errors: kInvalidArgument (see CheckChange),
  // kResourceExhausted.
  absl::StatusOr<uint64_t> Add(const v1::Change& wanted);

  // What a rank says that all have agreed on; CheckAgreed. Shortens why any of
  // it was refused. Returns whether that was news.
  bool Take(const Changes& agreed);

  // nullopt: there is none.
  std::optional<v1::Change> Find(uint64_t ticket) const;

  // Begins with what an earlier list held.
  void Restore(const Changes& changes);

  Changes All() const;

 private:
  struct Entry {
    v1::Change change;
    uint64_t ticket = 0;
  };

  std::vector<Entry> entries_;  // by number
  uint64_t next_ticket_ = 1;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_CHANGE_LIST_H_
