#include "learner/collective/coordinator_store.h"

#include "absl/time/time.h"
#include "learner/torch.h"

namespace flotilla {
namespace {

std::vector<uint8_t> ToBytes(const std::string& text) {
  return std::vector<uint8_t>(text.begin(), text.end());
}

std::string ToText(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace

CoordinatorStore::CoordinatorStore(CoordinatorClient* coordinator,
                                   uint64_t generation,
                                   std::chrono::milliseconds timeout)
    : c10d::Store(timeout),
      coordinator_(coordinator),
      generation_(generation),
      error_(std::make_shared<FirstError>()) {}

void CoordinatorStore::ThrowUnlessOk(const absl::Status& status) const {
  if (status.ok()) return;
  error_->Set(status);
  C10_THROW_ERROR(DistStoreError, status.ToString());
}

c10::intrusive_ptr<c10d::Store> CoordinatorStore::clone() {
  return c10::make_intrusive<CoordinatorStore>(*this);
}

void CoordinatorStore::set(const std::string& key,
                           const std::vector<uint8_t>& value) {
  ThrowUnlessOk(coordinator_->Set(generation_, key, ToText(value)));
}

std::vector<uint8_t> CoordinatorStore::get(const std::string& key) {
  const auto value =
      coordinator_->Get(generation_, key, absl::FromChrono(getTimeout()));
  ThrowUnlessOk(value.status());
  return ToBytes(*value);
}

int64_t CoordinatorStore::add(const std::string& key, int64_t value) {
  const auto sum = coordinator_->Add(generation_, key, value);
  ThrowUnlessOk(sum.status());
  return *sum;
}

std::vector<uint8_t> CoordinatorStore::compareSet(
    const std::string& key, const std::vector<uint8_t>& expected,
    const std::vector<uint8_t>& desired) {
  const auto value = coordinator_->CompareSet(
      generation_, key, ToText(expected), ToText(desired));
  ThrowUnlessOk(value.status());
  return ToBytes(*value);
}

bool CoordinatorStore::deleteKey(const std::string& key) {
  const auto deleted = coordinator_->Delete(generation_, key);
  ThrowUnlessOk(deleted.status());
  return *deleted;
}

bool CoordinatorStore::check(const std::vector<std::string>& keys) {
  const auto present = coordinator_->Check(generation_, keys);
  ThrowUnlessOk(present.status());
  return *present;
}

int64_t CoordinatorStore::getNumKeys() {
  const auto count = coordinator_->Count(generation_);
  ThrowUnlessOk(count.status());
  return *count;
}

void CoordinatorStore::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void CoordinatorStore::wait(const std::vector<std::string>& keys,
                            const std::chrono::milliseconds& timeout) {
  ThrowUnlessOk(
      coordinator_->Wait(generation_, keys, absl::FromChrono(timeout)));
}

}  // namespace flotilla
