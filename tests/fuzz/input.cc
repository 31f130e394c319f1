#include "tests/fuzz/input.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

namespace flotilla {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Sets a field, or adds to it if it is a list.
template <typename T>
void Put(Message* message, const FieldDescriptor* field, T value,
         void (Reflection::*set)(Message*, const FieldDescriptor*, T) const,
         void (Reflection::*add)(Message*, const FieldDescriptor*, T) const) {
  const Reflection* reflection = message->GetReflection();
  (reflection->*(field->is_repeated() ? add : set))(message, field,
                                                    std::move(value));
}

}  // namespace

uint8_t Input::Byte() {
  if (left_ == 0) return 0;
  --left_;
  return *data_++;
}

uint64_t Input::Integer() {
  constexpr uint8_t kRaw = 0xf0;
  const uint8_t first = Byte();
  if (first < kRaw) return first;
  switch (first) {
    case 0xf1:
      return std::numeric_limits<uint64_t>::max();  // -1
    case 0xf2:
      return std::numeric_limits<int64_t>::max();
    case 0xf3:
      return static_cast<uint64_t>(std::numeric_limits<int64_t>::min());
    case 0xf4:
      return std::numeric_limits<int32_t>::max();
    case 0xf5:
      return static_cast<uint64_t>(
          int64_t{std::numeric_limits<int32_t>::min()});
    default:
      uint64_t value = 0;
      for (int i = 0; i < 8; ++i) value = value << 8 | Byte();
      return value;
  }
}

double Input::Real() {
  const uint8_t first = Byte();
  if (first < 0xf0) return first / 16.0;
  const uint64_t bits = Integer();
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

std::string Input::Bytes() {
  const size_t size = std::min<size_t>(Byte(), left_);
  std::string bytes(reinterpret_cast<const char*>(data_), size);
  data_ += size;
  left_ -= size;
  return bytes;
}

std::string Input::Name(const std::vector<std::string>& known) {
  const uint8_t choice = Byte();
  if (choice >= 0xe0 || known.empty()) return Bytes();
  return known[choice % known.size()];
}

std::string Input::Rest() {
  std::string rest(reinterpret_cast<const char*>(data_), left_);
  data_ += left_;
  left_ = 0;
  return rest;
}

void Input::Fill(const std::vector<std::string>& known, Message* message) {
  const auto* type = message->GetDescriptor();
  while (!empty()) {
    const int choice = Byte();
    if (choice == 0) return;
    const FieldDescriptor* field =
        type->field((choice - 1) % type->field_count());
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        Put(message, field, static_cast<int32_t>(Integer()),
            &Reflection::SetInt32, &Reflection::AddInt32);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        Put(message, field, static_cast<int64_t>(Integer()),
            &Reflection::SetInt64, &Reflection::AddInt64);
        break;
      case FieldDescriptor::CPPTYPE_UINT32:
        Put(message, field, static_cast<uint32_t>(Integer()),
            &Reflection::SetUInt32, &Reflection::AddUInt32);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        Put(message, field, Integer(), &Reflection::SetUInt64,
            &Reflection::AddUInt64);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        Put(message, field, static_cast<float>(Real()), &Reflection::SetFloat,
            &Reflection::AddFloat);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        Put(message, field, Real(), &Reflection::SetDouble,
            &Reflection::AddDouble);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        Put(message, field, Byte() % 2 == 1, &Reflection::SetBool,
            &Reflection::AddBool);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        Put(message, field, static_cast<int>(Integer() % 16),
            &Reflection::SetEnumValue, &Reflection::AddEnumValue);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        Put(message, field, Name(known), &Reflection::SetString,
            &Reflection::AddString);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE: {
        const Reflection* reflection = message->GetReflection();
        Fill(known, field->is_repeated()
                        ? reflection->AddMessage(message, field)
                        : reflection->MutableMessage(message, field));
        break;
      }
    }
  }
}

}  // namespace flotilla
