# ale::ale: the Arcade Learning Environment's static library, where
# cmake/setup.sh built it. Its licence is GPL-2.0-only, so only the environment
# server links it, and the bundle that we distribute leaves it out.

set(FLOTILLA_HAS_ALE OFF)
if(NOT FLOTILLA_ATARI STREQUAL "OFF")
  if(EXISTS "${FLOTILLA_DEPS}/ale/lib/libale.a")
    set(FLOTILLA_HAS_ALE ON)
  elseif(FLOTILLA_ATARI STREQUAL "ON")
    message(FATAL_ERROR "FLOTILLA_ATARI=ON, but there is no ${FLOTILLA_DEPS}/ale: run cmake/setup.sh")
  endif()
endif()
message(STATUS "Atari: ${FLOTILLA_HAS_ALE}")

# Where `ale::ale` users find ROMs, as <name>.bin.
set(FLOTILLA_ALE_ROMS "${FLOTILLA_DEPS}/ale/roms" CACHE PATH "Folder of Atari ROMs")

if(FLOTILLA_HAS_ALE)
  find_package(ZLIB REQUIRED)
  add_library(ale::ale STATIC IMPORTED)
  set_target_properties(ale::ale PROPERTIES
    IMPORTED_LOCATION "${FLOTILLA_DEPS}/ale/lib/libale.a"
    INTERFACE_LINK_LIBRARIES "ZLIB::ZLIB;Threads::Threads"
    INTERFACE_COMPILE_DEFINITIONS
      "FLOTILLA_HAS_ALE;FLOTILLA_ALE_ROMS=\"${FLOTILLA_ALE_ROMS}\"")
  target_include_directories(ale::ale SYSTEM INTERFACE
    "${FLOTILLA_DEPS}/ale/include" "${FLOTILLA_DEPS}/ale/include/ale")
endif()
