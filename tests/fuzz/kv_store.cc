// services/coordinator/kv_store.h: any calls in any order, beside a store that
// is written in the plainest way.

#include "services/coordinator/kv_store.h"

#include <glog/logging.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "tests/fuzz/input.h"
#include "tests/testing/fake_clock.h"

namespace flotilla {
namespace {

class Twin {
 public:
  explicit Twin(Input* in) : in_(in) {}

  ~Twin() {
    store_.FailAll(absl::UnavailableError("the end"));
    CHECK(waiting_.empty()) << waiting_.size() << " never called back";
  }

  void Run() {
    while (!in_->empty()) Act();
  }

 private:
  using Place = std::pair<uint64_t, std::string>;  // generation, key

  std::string Key() {
    static const auto& keys =
        *new std::vector<std::string>{"a", "b", "c", "", "long"};
    std::string key = in_->Name(keys);
    if (key == "long") key.resize(KvStore::kMaxKeyBytes + in_->Below(2), 'x');
    return key;
  }

  std::string Value() {
    static const auto& values = *new std::vector<std::string>{
        "",  "0", "7",    "-9223372036854775808", "9223372036854775807", "no",
        "1", "2", "large"};
    std::string value = in_->Name(values);
    if (value == "large") {
      value.resize(KvStore::kMaxValueBytes + in_->Below(2), 'x');
    }
    return value;
  }

  std::vector<std::string> Keys() {
    std::vector<std::string> keys(in_->Below(4));
    for (std::string& key : keys) key = Key();
    return keys;
  }

  const std::string* Find(const Place& place) const {
    const auto found = values_.find(place);
    return found == values_.end() ? nullptr : &found->second;
  }

  // What Set of `value` has to say.
  absl::StatusCode Verdict(const Place& place, const std::string& value) const {
    if (place.first <= fenced_) return absl::StatusCode::kAborted;
    if (place.second.size() > KvStore::kMaxKeyBytes ||
        value.size() > KvStore::kMaxValueBytes) {
      return absl::StatusCode::kInvalidArgument;
    }
    return absl::StatusCode::kOk;
  }

  // A full store may refuse what would be fine.
  void Expect(const absl::Status& got, absl::StatusCode want) {
    if (absl::IsResourceExhausted(got)) {
      size_t total = 0;
      for (const auto& [place, value] : values_) {
        total += place.second.size() + value.size() + 64;
      }
      CHECK_GT(total + (1 << 20) + 2048, KvStore::kMaxTotalBytes);
      return;
    }
    CHECK_EQ(static_cast<int>(got.code()), static_cast<int>(want)) << got;
  }

  void Set(const Place& place) {
    const std::string value = Value();
    const absl::StatusCode want = Verdict(place, value);
    const absl::Status got = store_.Set(place.first, place.second, value);
    Expect(got, want);
    if (got.ok()) values_[place] = value;
  }

  void Add(const Place& place) {
    const int64_t amount = static_cast<int64_t>(in_->Integer());
    const std::string* old = Find(place);
    int64_t sum = 0;
    absl::StatusCode want = Verdict(place, "");
    if (old != nullptr && !absl::SimpleAtoi(*old, &sum)) {
      want = absl::StatusCode::kInvalidArgument;
    } else if (__builtin_add_overflow(sum, amount, &sum)) {
      want = absl::StatusCode::kOutOfRange;
    }
    const auto got = store_.Add(place.first, place.second, amount);
    Expect(got.status(), want);
    if (!got.ok()) return;
    CHECK_EQ(*got, sum);
    values_[place] = std::to_string(sum);
  }

  void CompareSet(const Place& place) {
    const std::string expected = Value(), desired = Value();
    const std::string* old = Find(place);
    const bool matches = old == nullptr ? expected.empty() : *old == expected;
    const absl::StatusCode want = Verdict(place, matches ? desired : "");
    const auto got =
        store_.CompareSet(place.first, place.second, expected, desired);
    if (!matches && old == nullptr) {
      CHECK(!got.ok() || got->empty());  // such a key is never there
      return;
    }
    Expect(got.status(), want);
    if (!got.ok()) return;
    CHECK(*got == (matches ? desired : *old));
    if (matches) values_[place] = desired;
  }

  void Delete(const Place& place) {
    const auto got = store_.Delete(place.first, place.second);
    if (place.first <= fenced_) {
      CHECK(absl::IsAborted(got.status()));
    } else {
      CHECK_EQ(*got, values_.erase(place) == 1);
    }
  }

  void Check(uint64_t generation) {
    const std::vector<std::string> keys = Keys();
    const auto got = store_.Check(generation, keys);
    const auto count = store_.Count(generation);
    if (generation <= fenced_) {
      CHECK(absl::IsAborted(got.status()));
      CHECK(absl::IsAborted(count.status()));
      return;
    }
    bool all = true;
    for (const std::string& key : keys) {
      all = all && Find({generation, key}) != nullptr;
    }
    CHECK_EQ(*got, all);
    int64_t here = 0;
    for (const auto& [place, value] : values_) {
      here += place.first == generation;
    }
    CHECK_EQ(*count, here);
  }

  void Wait(uint64_t generation) {
    const std::vector<std::string> keys = Keys();
    const absl::Time deadline =
        clock_.Now() + absl::Milliseconds(in_->Byte() * 10);
    const auto called = std::make_shared<bool>(false);
    const int wait = next_wait_++;
    waiting_.insert(wait);
    const uint64_t number =
        store_.Wait(generation, keys, deadline,
                    [=, this](const absl::StatusOr<std::string>& value) {
                      CHECK(!*called) << "called twice";
                      *called = true;
                      waiting_.erase(wait);
                      CHECK(!value.ok() || generation > fenced_);
                    });
    if (in_->Below(4) == 3) {
      CHECK_EQ(store_.Cancel(number), !*called);
      waiting_.erase(wait);
      *called = true;  // and must not be
    }
  }

  void Fence(uint64_t generation) {
    if (generation > fenced_) {
      fenced_ = generation;
      values_.erase(values_.begin(), values_.lower_bound({generation + 1, ""}));
      if (generation + 1 == 0) values_.clear();
    }
    store_.Fence(generation, "because");
  }

  void Act() {
    const uint64_t generation =
        in_->Below(16) == 15 ? in_->Integer() : fenced_ + in_->Below(3);
    switch (in_->Below(9)) {
      case 0:
      case 1:
        return Set({generation, Key()});
      case 2:
        return Add({generation, Key()});
      case 3:
        return CompareSet({generation, Key()});
      case 4:
        return Delete({generation, Key()});
      case 5:
        return Check(generation);
      case 6:
        return Wait(generation);
      case 7:
        return store_.Expire(
            clock_.Advance(absl::Milliseconds(10) * in_->Byte()));
      case 8:
        if (in_->Below(4) == 3) Fence(generation);
    }
  }

  Input* const in_;
  FakeClock clock_;
  KvStore store_;
  std::map<Place, std::string> values_;
  uint64_t fenced_ = 0;
  std::set<int> waiting_;
  int next_wait_ = 0;
};

}  // namespace
}  // namespace flotilla

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  flotilla::Input in(data, size);
  flotilla::Twin(&in).Run();
  return 0;
}
