//! Creating a tree.

use crate::error::TreeError;
use crate::group::Group;
use crate::node::Shape;
use crate::node::pack::EntryList;
use crate::op;
use crate::stock::Stock;
use crate::tree::Tree;
use firndb_base::TreeId;
use firndb_base::sync::Arc;
use firndb_buffer::BufferPool;
use firndb_log::LogClass;

impl Tree {
    /// Creates an empty tree, as one atomic group of the log. `attachment` travels in the record.
    pub fn create(
        pool: Arc<BufferPool>,
        id: TreeId,
        class: LogClass,
        attachment: &[u8],
    ) -> Result<Tree, TreeError> {
        let root = Stock::new(&pool, class).run(|stock| {
            let page = stock.take()?;
            let mut group = Group::new(stock);
            let root = page.page();
            let draft = page
                .draft(attachment, |body| op::format(body, &Shape::empty_root(id), &EntryList::default()));
            group.fill(page, draft);
            group.commit(stock)?;
            Ok(root)
        })?;
        Ok(Tree::open(pool, id, root))
    }
}
