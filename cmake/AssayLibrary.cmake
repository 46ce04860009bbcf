# The one installed library: the objects of all rooms in one archive, so that its users link assay::assay and nothing else.
get_property(rooms GLOBAL PROPERTY ASSAY_ROOMS)
add_library(assay STATIC)
add_library(assay::assay ALIAS assay)
foreach(room IN LISTS rooms)
  target_sources(assay PRIVATE $<TARGET_OBJECTS:${room}>)
endforeach()
set_target_properties(assay PROPERTIES LINKER_LANGUAGE CXX EXPORT_NAME assay)
target_compile_features(assay PUBLIC cxx_std_20)
target_include_directories(assay PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                        $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(assay PRIVATE $<BUILD_INTERFACE:assay_flags>)
target_link_libraries(assay PUBLIC Threads::Threads PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::XXHASH Boost::json
                                   fmt::fmt)
