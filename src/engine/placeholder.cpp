// Holds the room until its first source lands.
namespace assay { int placeholder_engine() { return 0; } }
