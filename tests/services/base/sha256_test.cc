#include "services/base/sha256.h"

#include <gtest/gtest.h>

#include <string>

namespace flotilla {
namespace {

// Vectors of FIPS 180-2, appendix B.
TEST(Sha256Test, MatchesThePublishedVectors) {
  EXPECT_EQ(Sha256Hex(std::string()),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex(std::string("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex(std::string(
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Sha256Hex(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, PiecesGiveTheDigestOfTheWhole) {
  const std::string text(1000, 'x');
  Sha256 sha256;
  for (size_t at = 0; at < text.size(); at += 7) {
    sha256.Update(text.data() + at, std::min<size_t>(7, text.size() - at));
  }
  EXPECT_EQ(sha256.HexDigest(), Sha256Hex(text));
}

TEST(Sha256Test, ZeroBytesCount) {
  EXPECT_NE(Sha256Hex(std::string("a")), Sha256Hex(std::string("a\0", 2)));
}

}  // namespace
}  // namespace flotilla
