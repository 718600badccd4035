use scratchpool::scratch_pool;

#[scratch_pool]
fn pool() {}

fn main() {
    pool();
}
