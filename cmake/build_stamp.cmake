# Writes OUT, what a shared library of a user's is compared by before it is loaded
# (learner/plugin/shared_library.h): the version, and a digest of every header that
# it may have been compiled with, listed in the file LIST. Run as
#
#   cmake -DROOT=... -DLIST=... -DVERSION=... -DOUT=... -P cmake/build_stamp.cmake

file(STRINGS "${LIST}" headers)
set(digests "")
foreach(header IN LISTS headers)
  file(SHA256 "${ROOT}/${header}" digest)
  string(APPEND digests "${header} ${digest}\n")
endforeach()
string(SHA256 digest "${digests}")
string(SUBSTRING "${digest}" 0 12 digest)
file(CONFIGURE OUTPUT "${OUT}" CONTENT [[
// Generated: see cmake/build_stamp.cmake.
#define FLOTILLA_VERSION_STAMP "@VERSION@"
#define FLOTILLA_HEADERS_STAMP "@digest@"
]] @ONLY)
