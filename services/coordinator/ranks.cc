#include "services/coordinator/ranks.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace flotilla {
namespace {

// Places filled one by one; every learner is placed once.
class Places {
 public:
  explicit Places(size_t count) : places_(count) {}

  // Whether `rank` exists and is free.
  bool Free(int rank) const {
    return rank >= 0 && rank < static_cast<int>(places_.size()) &&
           !places_[rank].has_value();
  }

  void Put(int rank, v1::Member learner) { places_[rank] = std::move(learner); }

  void PutFirstFree(v1::Member learner) {
    while (places_[first_free_].has_value()) ++first_free_;
    places_[first_free_] = std::move(learner);
  }

  std::vector<v1::Member> Take() {
    std::vector<v1::Member> result;
    for (std::optional<v1::Member>& place : places_) {
      result.push_back(*std::move(place));
    }
    return result;
  }

 private:
  std::vector<std::optional<v1::Member>> places_;
  size_t first_free_ = 0;
};

void CountNodes(std::vector<v1::Member>* learners) {
  std::map<std::pair<int, std::string>, int> sizes;
  for (const v1::Member& m : *learners) ++sizes[{m.node_rank(), m.host()}];
  for (v1::Member& m : *learners) {
    m.set_local_world_size(sizes[{m.node_rank(), m.host()}]);
  }
}

}  // namespace

bool ComesBefore(const v1::Member& a, const v1::Member& b) {
  const auto key = [](const v1::Member& m) {
    const int rank = m.requested_rank() > 0 ? m.requested_rank()
                                            : std::numeric_limits<int>::max();
    return std::make_tuple(rank, m.node_rank(), m.local_rank(), m.id());
  };
  return key(a) < key(b);
}

std::vector<v1::Member> RankLearners(
    std::vector<v1::Member> learners,
    const std::vector<PreviousPlace>& previous) {
  absl::flat_hash_map<std::string, int> had;  // id -> rank before
  for (size_t i = 0; i < previous.size(); ++i) had[previous[i].id] = i;
  const auto rank_before = [&](const v1::Member& m) {
    const auto found = had.find(m.id());
    return found == had.end() ? -1 : found->second;
  };
  Places places(learners.size());

  // Survivors, in their old order.
  const auto newcomers = std::partition(
      learners.begin(), learners.end(), [&](const v1::Member& m) {
        const int rank = rank_before(m);
        return rank >= 0 && previous[rank].survives;
      });
  std::sort(learners.begin(), newcomers,
            [&](const v1::Member& a, const v1::Member& b) {
              return rank_before(a) < rank_before(b);
            });
  const bool all_fit = std::all_of(
      learners.begin(), newcomers,
      [&](const v1::Member& m) { return places.Free(rank_before(m)); });
  for (auto m = learners.begin(); m != newcomers; ++m) {
    const int rank = rank_before(*m);
    if (all_fit) {
      places.Put(rank, std::move(*m));
    } else {
      places.PutFirstFree(std::move(*m));
    }
  }

  // The others: the place they had, the place they want, any place.
  std::vector<v1::Member> rest(std::make_move_iterator(newcomers),
                               std::make_move_iterator(learners.end()));
  std::sort(rest.begin(), rest.end(), ComesBefore);
  const auto place = [&](auto rank_of) {
    std::vector<v1::Member> unplaced;
    for (v1::Member& m : rest) {
      const int rank = rank_of(m);
      if (places.Free(rank)) {
        places.Put(rank, std::move(m));
      } else {
        unplaced.push_back(std::move(m));
      }
    }
    rest = std::move(unplaced);
  };
  place(rank_before);
  place([](const v1::Member& m) { return m.requested_rank() - 1; });
  for (v1::Member& m : rest) places.PutFirstFree(std::move(m));

  std::vector<v1::Member> result = places.Take();
  CountNodes(&result);
  return result;
}

}  // namespace flotilla
