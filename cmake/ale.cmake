# flotilla_atari: the library of envserver/ale, with the Arcade Learning Environment that
# cmake/setup.sh built. Its licence is GPL-2.0-only: it lies beside the programs, the
# environment server alone opens it, and nothing that we distribute has it.

set(FLOTILLA_HAS_ALE OFF)
if(NOT FLOTILLA_ATARI STREQUAL "OFF")
  if(EXISTS "${FLOTILLA_DEPS}/ale/lib/libale.a")
    set(FLOTILLA_HAS_ALE ON)
  elseif(FLOTILLA_ATARI STREQUAL "ON")
    message(FATAL_ERROR "FLOTILLA_ATARI=ON, but there is no ${FLOTILLA_DEPS}/ale: run cmake/setup.sh")
  endif()
endif()
message(STATUS "Atari: ${FLOTILLA_HAS_ALE}")

# Where it finds ROMs, as <name>.bin, if none lie beside it. What follows from another
# variable of the cache is not kept there: it would stay behind.
set(FLOTILLA_ALE_ROMS "" CACHE PATH "Folder of Atari ROMs; empty: those of cmake/setup.sh")
set(roms "${FLOTILLA_DEPS}/ale/roms")
if(FLOTILLA_ALE_ROMS)
  set(roms "${FLOTILLA_ALE_ROMS}")
endif()

if(FLOTILLA_HAS_ALE)
  find_package(ZLIB REQUIRED)
  add_library(flotilla_atari MODULE envserver/ale/ale_library.cc)
  target_compile_definitions(flotilla_atari PRIVATE "FLOTILLA_ALE_ROMS=\"${roms}\"")
  target_include_directories(flotilla_atari SYSTEM PRIVATE
    "${FLOTILLA_DEPS}/ale/include" "${FLOTILLA_DEPS}/ale/include/ale")
  target_compile_options(flotilla_atari PRIVATE -ffp-contract=off)
  target_link_libraries(flotilla_atari PRIVATE flotilla_flags flotilla_warnings
    "${FLOTILLA_DEPS}/ale/lib/libale.a" ZLIB::ZLIB Threads::Threads)
  target_link_options(flotilla_atari PRIVATE -Wl,--exclude-libs,ALL)
  set_target_properties(flotilla_atari PROPERTIES
    CXX_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")
  flotilla_part(programs flotilla_atari)
endif()
