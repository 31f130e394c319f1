#ifndef FLOTILLA_LEARNER_PLUGIN_BUILD_STAMP_H_
#define FLOTILLA_LEARNER_PLUGIN_BUILD_STAMP_H_

#include <torch/version.h>

#include "flotilla/build_stamp_values.h"

// What a program or library was compiled with, as text: "flotilla=0.1.0
// headers=3f9c... torch=2.11.0 abi=cxx11-1017". Objects of ours may cross from
// one to the other where all of it is equal, and not otherwise.

#define FLOTILLA_STAMP_TEXT_(x) #x
#define FLOTILLA_STAMP_TEXT(x) FLOTILLA_STAMP_TEXT_(x)

#if _GLIBCXX_USE_CXX11_ABI
#define FLOTILLA_STRING_ABI "cxx11"
#else
#define FLOTILLA_STRING_ABI "cxx98"
#endif

#define FLOTILLA_BUILD_STAMP                                            \
  "flotilla=" FLOTILLA_VERSION_STAMP " headers=" FLOTILLA_HEADERS_STAMP \
  " torch=" TORCH_VERSION " abi=" FLOTILLA_STRING_ABI                   \
  "-" FLOTILLA_STAMP_TEXT(__GXX_ABI_VERSION)

// By which it is found in a library's file before anything of it is loaded.
#define FLOTILLA_STAMP_MARK "FLOTILLA-BUILD-STAMP:"

// In a library: once for each thing it brings.
#define FLOTILLA_STAMPED()                                                   \
  extern "C" {                                                               \
  __attribute__((                                                            \
      used,                                                                  \
      visibility("default"))) inline constexpr char flotilla_build_stamp[] = \
      FLOTILLA_STAMP_MARK FLOTILLA_BUILD_STAMP;                              \
  }                                                                          \
  static_assert(true)

#endif  // FLOTILLA_LEARNER_PLUGIN_BUILD_STAMP_H_
