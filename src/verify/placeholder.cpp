namespace assay::verify {}  // until the room's first source
