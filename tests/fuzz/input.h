#ifndef FLOTILLA_TESTS_FUZZ_INPUT_H_
#define FLOTILLA_TESTS_FUZZ_INPUT_H_

#include <google/protobuf/message.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace flotilla {

// A fuzzer's bytes, read as choices. Once they are used up every choice is 0:
// any string of bytes is an input, and a prefix of it means the same.
//
// Borrows the bytes. Not thread-safe.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }

  uint8_t Byte();

  // 0 to `count` - 1, of at most 256.
  int Below(int count) { return Byte() % count; }

  // Small ones more often than not; any 64 bits, and the ends of the usual
  // types.
  uint64_t Integer();

  double Real();

  // Up to 255 bytes.
  std::string Bytes();

  // One of `known` more often than not, else Bytes().
  std::string Name(const std::vector<std::string>& known);

  // Everything that is left.
  std::string Rest();

  // Sets some fields of `message`, of any type; strings are Name(known).
  void Fill(const std::vector<std::string>& known,
            google::protobuf::Message* message);

 private:
  const uint8_t* data_;
  size_t left_;
};

}  // namespace flotilla

#endif  // FLOTILLA_TESTS_FUZZ_INPUT_H_
