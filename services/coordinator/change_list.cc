#include "services/coordinator/change_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "services/base/config_change.h"
#include "services/base/status_macros.h"
#include "services/coordinator/limits.h"

namespace flotilla {
namespace {

bool SameOverrides(const v1::Change& a, const v1::Change& b) {
  return std::equal(a.override().begin(), a.override().end(),
                    b.override().begin(), b.override().end());
}

// What a rank says, and what is kept of that.
bool Same(const v1::Change& theirs, const v1::Change& mine) {
  return theirs.number() == mine.number() && theirs.update() == mine.update() &&
         SameOverrides(theirs, mine) &&
         Shortened(theirs.refused()) == mine.refused();
}

}  // namespace

absl::Status CheckAgreed(
    const google::protobuf::RepeatedPtrField<v1::Change>& changes) {
  if (static_cast<size_t>(changes.size()) > kMaxChanges) {
    return absl::InvalidArgumentError(
        absl::StrCat("heartbeat.change has ", changes.size(),
                     " changes, want at most ", kMaxChanges));
  }
  for (int i = 0; i < changes.size(); ++i) {
    const v1::Change& change = changes[i];
    if (change.number() != i + 1 || change.update() < 1) {
      return absl::InvalidArgumentError(absl::StrCat(
          "heartbeat.change ", i + 1, " has the number ", change.number(),
          " and update ", change.update(),
          ", want numbers from 1 and an update that was agreed on"));
    }
    // Without the words of a refusal, which Take shortens: a rank whose
    // heartbeats are refused is taken for dead.
    const size_t bytes = change.ByteSizeLong() - change.refused().size();
    if (bytes > 2 * kMaxChangeBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "heartbeat.change ", i + 1, " has ", bytes,
          " bytes besides `refused`, want at most ", 2 * kMaxChangeBytes));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> ChangeList::Add(const v1::Change& wanted) {
  if (wanted.ByteSizeLong() > kMaxChangeBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the change has ", wanted.ByteSizeLong(),
                     " bytes, want at most ", kMaxChangeBytes));
  }
  RETURN_IF_ERROR(
      CheckChange({wanted.override().begin(), wanted.override().end()}));
  if (entries_.size() >= kMaxChanges) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this run was changed ", kMaxChanges,
                     " times, which is all it keeps: stop it and `flotilla "
                     "train --resume RUN "
                     "--set ...`"));
  }
  Entry entry;
  *entry.change.mutable_override() = wanted.override();
  entry.change.set_number(static_cast<int64_t>(entries_.size()) + 1);
  entry.ticket = next_ticket_++;
  entries_.push_back(std::move(entry));
  return entries_.back().ticket;
}

bool ChangeList::Take(const Changes& agreed) {
  const size_t known = static_cast<size_t>(agreed.size());
  const bool news =
      known > entries_.size() ||
      !std::equal(agreed.begin(), agreed.end(), entries_.begin(),
                  [](const v1::Change& theirs, const Entry& mine) {
                    return Same(theirs, mine.change);
                  });
  if (!news) return false;
  std::vector<Entry> next;
  std::vector<Entry> displaced;  // by what the ranks had agreed on before
  for (size_t i = 0; i < known; ++i) {
    Entry entry = {agreed[static_cast<int>(i)], 0};
    entry.change.DiscardUnknownFields();
    entry.change.set_refused(Shortened(entry.change.refused()));
    if (i < entries_.size()) {
      Entry& mine = entries_[i];
      if (SameOverrides(mine.change, entry.change)) {
        entry.ticket = mine.ticket;
      } else if (mine.change.update() == 0) {
        displaced.push_back(std::move(mine));
      }
    }
    next.push_back(std::move(entry));
  }
  for (size_t i = known; i < entries_.size(); ++i) {
    next.push_back(std::move(entries_[i]));
  }
  for (Entry& entry : displaced) next.push_back(std::move(entry));
  if (next.size() > kMaxChanges) next.resize(kMaxChanges);
  entries_ = std::move(next);
  for (size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].change.set_number(static_cast<int64_t>(i) + 1);
  }
  return true;
}

std::optional<v1::Change> ChangeList::Find(uint64_t ticket) const {
  for (const Entry& entry : entries_) {
    if (entry.ticket == ticket) return entry.change;
  }
  return std::nullopt;
}

void ChangeList::Restore(const Changes& changes) {
  entries_.clear();
  for (const v1::Change& change : changes) entries_.push_back({change, 0});
}

ChangeList::Changes ChangeList::All() const {
  Changes all;
  for (const Entry& entry : entries_) *all.Add() = entry.change;
  return all;
}

}  // namespace flotilla
